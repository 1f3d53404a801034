import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { IdentityLinks } from "@/features/auth/IdentityLinks";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const IDENTITY = {
  id: "identity_1",
  issuer: "https://login.example.org",
  subject: "s-1",
  email: "grace@lab.example",
  created: "2026-11-20T08:00:00Z",
  last_used: "2026-11-21T08:00:00Z",
};

function render() {
  renderRoute(
    <AsyncBoundary>
      <IdentityLinks />
    </AsyncBoundary>,
  );
}

it("unlinks an identity, and says why that is refused", async () => {
  let identities = [IDENTITY];
  let refuse = true;
  server.use(
    http.get("*/api/v1/auth/oidc", () => HttpResponse.json({ name: "Lab login" })),
    http.get("*/api/v1/me/oidc", () => HttpResponse.json(identities)),
    http.delete("*/api/v1/me/oidc/identity_1", () => {
      if (refuse) return HttpResponse.json({ status: 409, code: "no_password", detail: "Set a password first.", errors: [] }, { status: 409 });
      identities = [];
      return new HttpResponse(null, { status: 204 });
    }),
  );
  render();
  expect(await screen.findByText(/You sign in as grace@lab.example at/)).toBeDefined();
  expect((await screen.findByText("Lab login")).title).toBe("https://login.example.org");
  expect(screen.queryByLabelText("Your password")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: /^Unlink/ }));
  expect(await screen.findByText("Set a password first.")).toBeDefined();
  refuse = false;
  await userEvent.click(screen.getByRole("button", { name: /^Unlink/ }));
  expect(await screen.findByRole("button", { name: "Link Lab login" })).toBeDefined();
});

it("links an identity only with the password", async () => {
  const sent: unknown[] = [];
  server.use(
    http.get("*/api/v1/auth/oidc", () => HttpResponse.json({ name: "Lab login" })),
    http.get("*/api/v1/me/oidc", () => HttpResponse.json([])),
    http.post("*/api/v1/me/oidc", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ status: 422, code: "invalid", detail: "This is not your current password.", errors: [] }, { status: 422 });
    }),
  );
  render();
  await userEvent.type(await screen.findByLabelText("Your password"), "not it");
  await userEvent.click(screen.getByRole("button", { name: "Link Lab login" }));
  expect(await screen.findByText("This is not your current password.")).toBeDefined();
  expect(sent).toEqual([{ current_password: "not it", next: "/" }]);
});

it("shows nothing without a provider and identities", async () => {
  server.use(
    http.get("*/api/v1/auth/oidc", () => HttpResponse.json({ name: null })),
    http.get("*/api/v1/me/oidc", () => HttpResponse.json([])),
  );
  render();
  await waitFor(() => {
    expect(screen.queryByRole("status")).toBeNull();
  });
  expect(screen.queryByRole("button")).toBeNull();
});
