import { expect, it } from "vitest";
import { viewOf } from "@/features/metrics/charts/chartView";
import { compareViewOf, parseCompare, searchOfCompare } from "@/features/metrics/compare/compareView";

it("starts with the smoothing of a run's page", () => {
  const view = compareViewOf(parseCompare({ runs: "run_1,run_2" }));
  expect(view.chart).toEqual(viewOf({}));
  expect(view.chart.smooth).toBeGreaterThan(0);
  expect(searchOfCompare(view)).toEqual({ runs: "run_1,run_2" });
  expect(compareViewOf({ runs: "run_1", smooth: 0 }).chart.smooth).toBe(0);
});
