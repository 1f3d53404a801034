import { cleanup, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Run, RunState } from "@/api/types";
import { queryClient } from "@/app/queryClient";
import { openApp } from "@tests/support/app";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "editor" }] };
const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such thing." };
const HOUR_MS = 3_600_000;

/** Created one after another, newest first, in the order of the list. */
function many(count: number, state: RunState, ended: (index: number) => number | null): Run[] {
  return Array.from({ length: count }, (_, index) => {
    const at = ended(index);
    return aRun({ id: `run_${state}_${index}`, name: `${state} ${index}`, state, ended: at === null ? null : new Date(at).toISOString() });
  });
}

const QUOTA = [
  { device: "cuda", limit: 8, used: 0, joined: 0 },
  { device: "cpu", limit: 8, used: 1, joined: 2 },
];

/** The home page of a team with these runs. */
async function open(runs: Run[], datasets: object[] = [], checkpoints: object[] = []) {
  cleanup();
  localStorage.clear();
  queryClient.clear();
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/runs", ({ request }) => {
      const query = new URL(request.url).searchParams;
      const states = query.getAll("state");
      const all = runs.filter(({ state }) => states.length === 0 || states.includes(state));
      if (query.get("sort") === "ended") all.sort((one, other) => (other.ended ?? "").localeCompare(one.ended ?? ""));
      const limit = Number(query.get("limit"));
      return HttpResponse.json({ items: all.slice(0, limit), next_cursor: all.length > limit ? "c1" : null });
    }),
    http.get("*/api/v1/teams/lab/runs/:run/checkpoints", () => HttpResponse.json({ items: checkpoints, next_cursor: null })),
    http.get("*/api/v1/teams/lab/datasets", () => HttpResponse.json({ items: datasets, next_cursor: null })),
    http.get("*/api/v1/teams/lab", () => HttpResponse.json({ quota: QUOTA, storage: { used_bytes: 0, limit_bytes: 1 } })),
    http.all("*/api/v1/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab");
}

const patient = { timeout: 5_000 };
const list = (name: string) => screen.findByRole("list", { name }, patient);

it("shows a recent failure of the oldest run, and that more runs wait than were loaded", async () => {
  const now = Date.now();
  // The oldest run failed an hour ago, the others a month ago.
  const failed = many(300, "failed", (index) => now - (index === 299 ? HOUR_MS : 30 * 24 * HOUR_MS));
  await open([...failed, ...many(60, "queued", () => null)]);
  expect(await screen.findByRole("heading", { name: "1 run failed since your last visit" }, patient)).toBeDefined();
  expect(within(await list("Failed runs")).getByText("failed 299")).toBeDefined();
  expect(screen.getByRole("link", { name: "At least 42 more runs" })).toBeDefined();
});

it("shows running runs with their curves, and each other run with its reason and next step", async () => {
  const ended = new Date(Date.now() - HOUR_MS).toISOString();
  const checkpoints = [
    { kind: "state", step: 200, valid: true },
    { kind: "state", step: 250, valid: true },
    { kind: "export", step: 300, valid: true },
  ];
  await open([
    aRun({ id: "run_1", name: "live" }),
    aRun({ id: "run_2", name: "next", state: "queued", sentence: "needs 2 slots, 1 free on 1 node; 1st in line" }),
    aRun({ id: "run_6", name: "first", state: "queued", sentence: "needs 1 slot, 0 free on 1 node" }),
    aRun({ id: "run_3", name: "held", state: "paused", paused: new Date(Date.now() - HOUR_MS).toISOString(), sentence: "Paused at step 40 of 100" }),
    aRun({ id: "run_4", name: "good", state: "succeeded", sentence: "loss 2.81, 38.2 % MFU", ended }),
    aRun({ id: "run_5", name: "poor", state: "failed", reason: "diverged", sentence: "The loss is not finite at step 310.", ended }),
  ], [], checkpoints);
  const running = within(await list("Running now"));
  expect(running.getByRole("img", { name: "Loss of live so far, now 3.124" })).toBeDefined();
  expect(running.getByText("step 1,200 of 5,000")).toBeDefined();
  const queued = await list("Queued runs");
  expect(queued.textContent).toContain("needs 2 slots, 1 free on 1 node; 1st in line");
  expect(queued.textContent).not.toContain("held");
  expect(queued.textContent).toMatch(/first.*next/);
  expect((await list("Paused runs")).textContent).toContain("Paused at step 40 of 100");
  expect((await list("Paused runs")).textContent, "since the pause, not since the submission").toContain("for 1 h");
  expect((await list("Finished runs")).textContent).toContain("loss 2.81, 38.2 % MFU");
  expect(within(await list("Finished runs")).getAllByRole("link").map(({ textContent }) => textContent)).toEqual(["good", "View checkpoints"]);
  const failed = within(await list("Failed runs"));
  expect(failed.getByText("The loss is not finite at step 310.")).toBeDefined();
  expect(failed.getByRole("link", { name: "View logs" }).getAttribute("href")).toBe("/lab/runs/run_5/logs");
  expect(failed.getByRole("link", { name: "Clone run" })).toBeDefined();
  expect(await failed.findByRole("link", { name: "Continue from step 250" }, patient)).toBeDefined();
});

it("tells runs of one name apart, resumes a paused run, and offers no checkpoints of a run that has none", async () => {
  const ended = new Date(Date.now() - HOUR_MS).toISOString();
  await open([
    aRun({ id: "run_aaaaabbbbb", name: "pilot" }),
    aRun({ id: "run_cccccddddd", name: "pilot", state: "paused", sentence: "Paused at step 40 of 100" }),
    aRun({ id: "run_5", name: "poor", state: "failed", reason: "diverged", sentence: "The loss is not finite at step 310.", ended }),
  ]);
  expect((await list("Running now")).textContent).toContain("pilot bbbbb");
  const paused = within(await list("Paused runs"));
  expect(paused.getByRole("link", { name: "pilot ddddd" })).toBeDefined();
  const failed = within(await list("Failed runs"));
  expect(failed.getByRole("link", { name: "poor" })).toBeDefined();
  await waitFor(() => {
    expect(failed.queryByRole("link", { name: "View checkpoints" })).toBeNull();
  }, patient);
  const refused = { title: "Conflict", status: 409, code: "not_paused", detail: "The run is not paused." };
  server.use(http.post("*/api/v1/teams/lab/runs/run_cccccddddd/resume", () => HttpResponse.json(refused, { status: 409 })));
  await userEvent.click(paused.getByRole("button", { name: "Resume pilot" }));
  expect((await paused.findByRole("alert")).textContent).toContain("The run is not paused.");
});

it("guides through the first steps until a run has finished, and shows no quota of devices that no node has", async () => {
  await open([], []);
  expect(await screen.findByRole("heading", { name: "No runs yet." }, patient)).toBeDefined();
  expect(screen.queryByRole("heading", { name: "Running now" })).toBeNull();
  expect((await screen.findByText("CPU slots")).parentElement?.textContent).toBe("CPU slots1 in use, at most 8 at onceonly 2 on the nodes");
  expect(screen.queryByText("GPUs")).toBeNull();
  await open([aRun({ state: "queued" })], [{ id: "ds_1" }]);
  expect(await screen.findByRole("heading", { name: "First steps" }, patient)).toBeDefined();
  expect(screen.getByRole("heading", { name: /^Upload data/ }).textContent).toContain("(done)");
  await userEvent.click(screen.getByRole("button", { name: "Dismiss" }));
  expect(screen.queryByRole("heading", { name: "First steps" })).toBeNull();
  await open([aRun({ state: "succeeded", ended: "2026-11-21T14:00:00Z" })]);
  expect(await list("Finished runs")).toBeDefined();
  expect(screen.queryByRole("heading", { name: "First steps" })).toBeNull();
});
