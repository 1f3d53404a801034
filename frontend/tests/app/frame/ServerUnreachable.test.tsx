import { act, screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { connection } from "@/lib/connection";
import { openApp } from "@tests/support/app";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "owner" }] };
const LINK = { purpose: "sign_in", email: "ada@example.org", team: null, needs_account: false };

it("says that the server cannot be reached, and opens the page once it responds", async () => {
  server.use(http.get("*/api/v1/me", () => HttpResponse.error()));
  await openApp("/lab/runs");
  await screen.findByRole("heading", { name: "The server cannot be reached" });
  expect(screen.getByText(/This page shows no newer data/)).toBeDefined();
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/runs", () => HttpResponse.json({ items: [], next_cursor: null })),
  );
  act(() => {
    connection.restored();
  });
  await waitFor(() => {
    expect(document.title).toBe("Runs · lab · Trainwright");
  });
});

it("does not call a link invalid because the server is away", async () => {
  server.use(http.get("*/api/v1/auth/link/abc", () => HttpResponse.error()));
  await openApp("/link/abc");
  await screen.findByRole("heading", { name: "The server cannot be reached" });
  expect(screen.queryByText("This link is not valid")).toBeNull();
  server.use(http.get("*/api/v1/auth/link/abc", () => HttpResponse.json(LINK)));
  act(() => {
    screen.getByRole("button", { name: "Try again" }).click();
  });
  await screen.findByRole("heading", { name: "Sign in" });
});
