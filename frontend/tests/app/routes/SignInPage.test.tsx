import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { openApp } from "@tests/support/app";
import { server } from "@tests/support/server";

it("says how to get an account, whether or not the server has an owner", async () => {
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json({ title: "Not signed in", status: 401, code: "not_signed_in", detail: "Sign in." }, { status: 401 })),
    http.get("*/api/v1/health", () => HttpResponse.json({ status: "ok", version: "1", problems: [], sends_mail: false })),
    http.get("*/api/v1/auth/oidc", () => HttpResponse.json(null)),
  );
  await openApp("/sign-in");
  const hint = await screen.findByText(/^No account yet\?/);
  expect(hint.textContent).toBe("No account yet? Ask an owner of your team for an invitation. On a new server, the terminal shows a link for the first owner.");
});
