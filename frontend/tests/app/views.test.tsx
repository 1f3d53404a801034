import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it } from "vitest";
import { router } from "@/app/router";
import { openApp } from "@tests/support/app";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "viewer" }] };
const RUNS = ["run_1", "run_2"].map((id) => aRun({ id, name: id, state: "succeeded", ended: "2026-11-21T14:00:00Z" }));
const STEPS = Array.from({ length: 100 }, (_, index) => index + 1);
const LOSS = { name: "loss", unit: "", steps: STEPS, values: STEPS.map((step) => 1 / step) };

const LOSS_INFO = { name: "loss", title: "loss", unit: "nats/token", group: "learning", description: "", fp8_only: false, derived: false };

let listed = RUNS;

beforeEach(() => {
  listed = RUNS;
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/runs", ({ request }) => {
      const q = new URL(request.url).searchParams.get("q") ?? "";
      return HttpResponse.json({ items: listed.filter(({ name }) => name.includes(q)), next_cursor: null });
    }),
    http.get("*/api/v1/teams/lab/datasets", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.get("*/api/v1/series", () => HttpResponse.json({ series: [LOSS_INFO], families: [] })),
    http.get("*/api/v1/teams/lab/metrics", () => HttpResponse.json(RUNS.map(({ id }) => ({ run: id, series: [LOSS] })))),
    http.get("*/api/v1/teams/lab/runs/run_1/metrics", () => HttpResponse.json({ series: [LOSS], attempts: [], cursor: "1:1" })),
    http.get("*/api/v1/teams/lab/runs/run_1/events", () => HttpResponse.json({ items: [] })),
    http.get("*/api/v1/teams/lab/runs/run_1/checkpoints", () => HttpResponse.json({ items: [] })),
    http.get("*/api/v1/teams/lab/runs/run_1", () => HttpResponse.json(RUNS[0])),
  );
});

function search() {
  return router.state.location.search;
}

it("keeps a setting changed just before leaving a tab", async () => {
  await openApp("/lab/runs/run_1/overview");
  fireEvent.click(await screen.findByRole("radio", { name: "log" }));
  fireEvent.click(screen.getByRole("button", { name: "Zoom in" }));
  fireEvent.click(screen.getByRole("link", { name: "Events" }));
  await waitFor(() => {
    expect(router.state.location.pathname).toBe("/lab/runs/run_1/events");
    expect(search()).toMatchObject({ y: "log" });
  });
  expect(search()).toHaveProperty("from");
});

it("keeps a setting if the address ends with a slash", async () => {
  await openApp("/lab/runs/run_1/overview/");
  fireEvent.click(await screen.findByRole("radio", { name: "log" }));
  await waitFor(() => {
    expect(search()).toMatchObject({ y: "log" });
  });
});

it("writes no pending setting of a run into the next page's address", async () => {
  await openApp("/lab/runs/run_1/overview");
  fireEvent.click(await screen.findByRole("radio", { name: "log" }));
  act(() => {
    router.history.push("/lab/compare?runs=run_1,run_2");
  });
  await screen.findByRole("checkbox", { name: "Show run_1" });
  // A change made now is committed after the change made on the other page would have been.
  fireEvent.click(screen.getByRole("radio", { name: "tokens" }));
  await waitFor(() => {
    expect(search()).toEqual({ runs: "run_1,run_2", x: "tokens" });
  });
});

it("keeps simultaneous changes of a comparison's table and charts", async () => {
  await openApp("/lab/compare?runs=run_1,run_2");
  fireEvent.click(await screen.findByRole("radio", { name: "log" }));
  const list = await screen.findByRole("checkbox", { name: "Show run_1" });
  act(() => {
    fireEvent.click(list);
    fireEvent.click(screen.getByRole("checkbox", { name: "Show run_2" }));
  });
  await waitFor(() => {
    expect(search()).toEqual({ runs: "run_1,run_2", hide: "run_1,run_2", y: "log" });
  });
});

it("opens a comparison with other runs by keyboard alone", async () => {
  await openApp("/lab/runs/run_1/overview");
  const button = await screen.findByRole("button", { name: "compare with" });
  button.focus();
  await userEvent.keyboard("{Enter}run_2");
  expect(document.activeElement).toBe(screen.getByRole("searchbox", { name: "Find runs by name" }));
  expect(screen.queryByRole("checkbox", { name: /run_1/ })).toBeNull();
  await userEvent.tab();
  await userEvent.keyboard(" ");
  await userEvent.tab();
  await userEvent.keyboard("{Enter}");
  await screen.findByRole("checkbox", { name: "Show run_2" });
  expect(search()).toEqual({ runs: "run_1,run_2" });
});

it("adds a run to a comparison and keeps its view", async () => {
  await openApp("/lab/compare?runs=run_2&x=tokens");
  await userEvent.click(await screen.findByRole("button", { name: "add runs" }));
  expect(screen.queryByRole("checkbox", { name: /^run_2/ })).toBeNull();
  await userEvent.click(await screen.findByRole("checkbox", { name: /^run_1/ }));
  await userEvent.click(screen.getByRole("link", { name: "Compare 2 runs" }));
  await screen.findByRole("checkbox", { name: "Show run_1" });
  expect(search()).toEqual({ runs: "run_2,run_1", x: "tokens" });
  expect(screen.queryByRole("searchbox", { name: "Find runs by name" })).toBeNull();
});

it("offers no comparison if there is no other run", async () => {
  listed = RUNS.slice(0, 1);
  await openApp("/lab/runs/run_1/overview");
  await screen.findByRole("button", { name: "Zoom in" });
  expect(screen.queryByRole("button", { name: "compare with" })).toBeNull();
});

it("shows the last value of each compared run although lines are drawn from extremes", async () => {
  const steps = Array.from({ length: 1_000 }, (_, index) => index + 1);
  const values = steps.map((step) => (step === 998 ? 1 : step === 999 ? 9 : 5));
  server.use(http.get("*/api/v1/teams/lab/metrics", () => HttpResponse.json([{ run: "run_1", series: [{ ...LOSS, steps, values }] }, { run: "run_2", series: [LOSS] }])));
  await openApp("/lab/compare?runs=run_1,run_2");
  expect(await screen.findByText("last: run_1 5.000, run_2 0.0100")).toBeDefined();
});
