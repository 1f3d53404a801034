import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { SignInForm } from "@/features/auth/SignInForm";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it.each([true, false])("offers a link by email only if emails can be sent: %s", async (sends_mail) => {
  server.use(http.get("*/api/v1/health", () => HttpResponse.json({ status: "ok", version: "1", problems: [], sends_mail })));
  renderRoute(<SignInForm onSignedIn={() => undefined} />);
  const offered = sends_mail ? await screen.findByRole("button", { name: "Email me a sign-in link" }) : await screen.findByText(/Ask the operator/);
  expect(offered).toBeDefined();
  expect(screen.queryAllByRole("button", { name: "Email me a sign-in link" })).toHaveLength(sends_mail ? 1 : 0);
});
