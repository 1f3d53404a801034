import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { router } from "@/app/router";
import { openApp } from "@tests/support/app";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "owner" }] };

async function signOut(status: number, detail = "") {
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/auth/oidc", () => HttpResponse.json({ name: null })),
    http.get("*/api/v1/teams/lab/*", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.post("*/api/v1/auth/sign-out", () => (status === 204 ? new HttpResponse(null, { status }) : HttpResponse.json({ status, detail }, { status }))),
  );
  await openApp("/lab/queue");
  await userEvent.click(await screen.findByRole("button", { name: "lab" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Sign out Ada" }));
}

it.each([204, 401])("leads to the sign-in page after the session has ended (%i)", async (status) => {
  await signOut(status);
  await waitFor(() => {
    expect(router.state.location.pathname).toBe("/sign-in");
  });
});

it("stays and says so if the server cannot end the session", async () => {
  await signOut(503, "The database is busy. Wait a second.");
  expect((await screen.findByRole("alert")).textContent).toContain("The database is busy.");
  expect(router.state.location.pathname).toBe("/lab/queue");
});
