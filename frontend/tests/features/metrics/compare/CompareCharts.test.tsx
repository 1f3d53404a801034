import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { CompareCharts } from "@/features/metrics/compare/CompareCharts";
import { compareViewOf } from "@/features/metrics/compare/compareView";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const STEPS = Array.from({ length: 100 }, (_, index) => index + 1);
const series = (valueAt: (step: number) => number) => [{ name: "loss", unit: "", steps: STEPS, values: STEPS.map(valueAt) }];

it.each([
  ["linear", 1_500, 1],
  ["log", 1_500, 0],
  ["linear", 12, 0],
] as const)("says that values of a diverged run are cut off: on a %s axis, with a loss of %d", async (y, highest, notes) => {
  server.use(
    http.get("*/api/v1/series", () => HttpResponse.json({ series: [], families: [] })),
    http.get("*/api/v1/teams/lab/metrics", () =>
      HttpResponse.json([
        { run: "run_1", series: series((step) => 10 - step / 20) },
        { run: "run_2", series: series((step) => (step < 30 ? 10 : highest)) },
      ]),
    ),
  );
  const runs = new Map(["run_1", "run_2"].map((id) => [id, aRun({ id, name: id, state: "succeeded", ended: "2026-11-21T14:00:00Z" })]));
  const view = compareViewOf({ runs: "run_1,run_2", series: "loss", smooth: 0, ...(y === "log" ? { y } : {}) });
  renderRoute(<CompareCharts team="lab" runs={runs} view={view} onChange={() => undefined} />);
  expect(await screen.findByText(/^last: run_1 5\.000/)).toBeDefined();
  expect(screen.queryAllByText(/^Values above [\d.]+ are cut off\. A logarithmic axis shows them\.$/)).toHaveLength(notes);
});
