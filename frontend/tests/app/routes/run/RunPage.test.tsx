import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it } from "vitest";
import type { Run } from "@/api/types";
import { fullTime } from "@/lib/format";
import { openApp } from "@tests/support/app";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "editor" }] };
const START = "2026-11-21T14:02:00Z";
const QUEUED = { id: "run_1", expected_start: START, start_is_rough: false };

function serve(run: Run) {
  server.use(http.get("*/api/v1/teams/lab/runs/run_1", () => HttpResponse.json(run)));
}

beforeEach(() => {
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/runs", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.get("*/api/v1/teams/lab/datasets", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.get("*/api/v1/teams/lab/queue", () => HttpResponse.json({ items: [QUEUED], next_cursor: null })),
    http.get("*/api/v1/teams/lab/runs/run_1/metrics", () => HttpResponse.json({ series: [], attempts: [], cursor: "1:1" })),
    http.get("*/api/v1/teams/lab/runs/run_1/events", () => HttpResponse.json({ items: [] })),
    http.get("*/api/v1/teams/lab/runs/run_1/checkpoints", () => HttpResponse.json({ items: [] })),
  );
});

it("says what a queued run waits for and when it is expected to start, without empty tiles and charts", async () => {
  serve(aRun({ state: "queued", sentence: "needs 2 slots, 1 free", started: null, summary: { ...aRun().summary, step: 0, values: {} } }));
  await openApp("/lab/runs/run_1/overview");
  const banner = await screen.findByRole("region", { name: "What happened" });
  expect(banner.textContent).toContain("needs 2 slots, 1 free.");
  expect((await screen.findByTitle(fullTime(START))).parentElement?.textContent).toContain("Expected start: ");
  expect(screen.getByRole("link", { name: "View queue" })).toBeDefined();
  expect(await screen.findByText("No metrics yet.")).toBeDefined();
  for (const name of ["throughput", "step time breakdown"]) expect(screen.queryByText(name)).toBeNull();
});

it("shows the tiles of a run that waits after its first steps", async () => {
  serve(aRun({ state: "queued", sentence: "needs 2 slots, 1 free" }));
  await openApp("/lab/runs/run_1/overview");
  expect(await screen.findByText("throughput")).toBeDefined();
});

it("leads from the newest events to all of them", async () => {
  serve(aRun({ state: "succeeded", ended: START }));
  await openApp("/lab/runs/run_1/overview");
  const heading = await screen.findByRole("heading", { name: "events" });
  await userEvent.click(within(heading.parentElement ?? document.body).getByRole("link", { name: "Show all" }));
  expect(await screen.findByRole("search", { name: "Events" })).toBeDefined();
});

it("keeps its tabs in one place: what only the overview shows is below them", async () => {
  serve(aRun({ state: "succeeded", sentence: "loss 3.124", ended: START }));
  await openApp("/lab/runs/run_1/overview");
  const banner = await screen.findByRole("region", { name: "What happened" });
  const tabs = screen.getByRole("navigation", { name: "Parts of the run" });
  for (const part of [banner, screen.getByText("throughput")]) expect(tabs.compareDocumentPosition(part)).toBe(Node.DOCUMENT_POSITION_FOLLOWING);
  await userEvent.click(screen.getByRole("link", { name: "Events" }));
  expect(await screen.findByRole("search", { name: "Events" })).toBeDefined();
  expect(screen.queryByRole("region", { name: "What happened" })).toBeNull();
});

it("explains a run that failed on all tabs", async () => {
  serve(aRun({ state: "failed", reason: "crashed", sentence: "Rank 0 crashed", ended: START }));
  await openApp("/lab/runs/run_1/events");
  expect(await screen.findByRole("region", { name: "What happened" })).toBeDefined();
});
