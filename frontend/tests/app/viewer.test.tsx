import { act, screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { router } from "@/app/router";
import { openApp } from "@tests/support/app";
import { aDataset } from "@tests/support/datasets";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "viewer" }] };
const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such run." };

it("offers viewers no action that the API would refuse", async () => {
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/me/keys", () => HttpResponse.json([])),
    http.get("*/api/v1/me/oidc", () => HttpResponse.json([])),
    http.get("*/api/v1/auth/oidc", () => HttpResponse.json({ name: null })),
    http.get("*/api/v1/nodes", () => HttpResponse.json([])),
    http.get("*/api/v1/teams/lab/runs", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.get("*/api/v1/teams/lab/datasets", () => HttpResponse.json({ items: [aDataset(), aDataset({ id: "ds_2" })], next_cursor: null })),
    http.get("*/api/v1/teams/lab/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab/runs");
  await screen.findByText("No runs yet.");
  expect(screen.queryByRole("link", { name: "New run" })).toBeNull();

  act(() => {
    router.history.push("/lab/runs/new");
  });
  await screen.findByText("Viewers cannot start runs.");

  act(() => {
    router.history.push("/lab/datasets");
  });
  await screen.findByRole("region", { name: "Datasets" });
  expect(screen.queryByRole("button", { name: "Mix datasets" })).toBeNull();

  act(() => {
    router.history.push("/lab/settings/keys");
  });
  await screen.findByText("No API keys yet.");

  act(() => {
    router.history.push("/lab/settings/members");
  });
  await screen.findByRole("heading", { name: "Members" });
  expect(screen.queryByRole("heading", { name: "Invitations" })).toBeNull();
  expect(screen.queryByRole("heading", { name: "Service accounts" })).toBeNull();

  act(() => {
    router.history.push("/lab/nodes");
  });
  await screen.findByText("Only site admins can see nodes.");
  expect(screen.queryByRole("heading", { name: "Add a node" })).toBeNull();
});
