import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Run, RunState } from "@/api/types";
import { openApp } from "@tests/support/app";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "editor" }] };
const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such thing." };
const HOUR_MS = 3_600_000;

/** Created one after another, the newest first, as the list gives them. */
function many(count: number, state: RunState, ended: (index: number) => number | null): Run[] {
  return Array.from({ length: count }, (_, index) => {
    const at = ended(index);
    return aRun({ id: `run_${state}_${index}`, name: `${state} ${index}`, state, ended: at === null ? null : new Date(at).toISOString() });
  });
}

it("shows a recent failure of the oldest run, and that more runs wait than were loaded", async () => {
  const now = Date.now();
  // The oldest of all failed an hour ago, the others a month ago.
  const failed = many(300, "failed", (index) => now - (index === 299 ? HOUR_MS : 30 * 24 * HOUR_MS));
  const waiting = many(60, "queued", () => null);
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/runs", ({ request }) => {
      const query = new URL(request.url).searchParams;
      const states = query.getAll("state");
      const all = [...failed, ...waiting].filter(({ state }) => states.length === 0 || states.includes(state));
      if (query.get("sort") === "ended") all.sort((one, other) => (other.ended ?? "").localeCompare(one.ended ?? ""));
      const limit = Number(query.get("limit"));
      return HttpResponse.json({ items: all.slice(0, limit), next_cursor: all.length > limit ? "c1" : null });
    }),
    http.get("*/api/v1/teams/lab", () => HttpResponse.json({ quota: [], storage: { used_bytes: 0, limit_bytes: 1 } })),
    http.all("*/api/v1/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab");
  expect(await screen.findByRole("heading", { name: "1 run failed since your last visit" }, { timeout: 5_000 })).toBeDefined();
  expect(within(screen.getByRole("region", { name: "Failed runs" })).getByText("failed 299")).toBeDefined();
  expect(screen.getByRole("link", { name: "At least 38 more runs" })).toBeDefined();
});
