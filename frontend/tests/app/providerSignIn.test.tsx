import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Grace", email: "grace@lab.example", site_admin: false, has_password: false, teams: [] };
const REFUSED = { status: 401, code: "no_account", detail: "You have no account here. Ask an owner of your team for an invitation.", errors: [] };

beforeEach(() => {
  vi.resetModules();
  server.use(
    http.get("*/api/v1/health", () => HttpResponse.json({ status: "ok", version: "1", problems: [], sends_mail: false })),
    http.get("*/api/v1/auth/oidc", () => HttpResponse.json({ name: "Lab login" })),
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
  );
});

afterEach(() => {
  window.history.replaceState(null, "", "/");
});

/** Loads the application at an address, as a browser does that comes from elsewhere. */
async function arrive(address: string) {
  window.history.replaceState(null, "", address);
  const { openApp } = await import("@tests/support/app");
  await openApp(window.location.pathname);
}

it("signs in with what the provider sent, once, and removes the code from the address", async () => {
  const sent: unknown[] = [];
  server.use(
    http.post("*/api/v1/auth/oidc/finish", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ me: ME, next: "/" });
    }),
  );
  await arrive("/sign-in?code=abc&state=123");
  await waitFor(() => {
    expect(window.location.pathname).toBe("/");
  });
  expect(sent).toEqual([{ state: "123", authorization_code: "abc", error: null, issuer: null }]);
  expect(window.location.search).toBe("");
});

it("shows on the sign-in page why the provider's answer was refused", async () => {
  server.use(http.post("*/api/v1/auth/oidc/finish", () => HttpResponse.json(REFUSED, { status: 401 })));
  await arrive("/sign-in?code=abc&state=123");
  expect((await screen.findByRole("alert")).textContent).toBe(REFUSED.detail);
  expect(window.location.search).toBe("");
  expect(await screen.findByRole("button", { name: "Sign in with Lab login" })).toBeDefined();
});

it("leads to the provider, with the page that was wanted", async () => {
  const sent: unknown[] = [];
  server.use(
    http.post("*/api/v1/auth/oidc/start", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ status: 503, code: "provider_unavailable", detail: "Sign-in with Lab login does not work at the moment.", errors: [] }, { status: 503 });
    }),
  );
  await arrive("/sign-in");
  await userEvent.click(await screen.findByRole("button", { name: "Sign in with Lab login" }));
  expect(await screen.findByText("Sign-in with Lab login does not work at the moment.")).toBeDefined();
  expect(sent).toEqual([{ next: "/" }]);
});

it("offers no provider if there is none", async () => {
  server.use(http.get("*/api/v1/auth/oidc", () => HttpResponse.json({ name: null })));
  await arrive("/sign-in");
  await screen.findByLabelText("Password");
  expect(screen.queryByRole("button", { name: /^Sign in with/ })).toBeNull();
});
