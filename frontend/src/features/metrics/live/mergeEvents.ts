import type { StreamEvent } from "@/api/events";
import type { MetricPoints } from "@/api/types";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { append, appendElapsed, limitPoints, lastStep, rewind, sliceSteps, type Columns } from "@/lib/charts/series";
import { boundsOf } from "@/lib/charts/stepWindow";

/** Points kept per series: several per pixel, for runs of any length. */
export const MAX_POINTS = 6_000;

/** Applies stream events to the metrics in order; keeps at most `MAX_POINTS` per series. */
export function mergeEvents(metrics: LiveMetrics, events: readonly StreamEvent[]): LiveMetrics {
  let { columns, cursor } = metrics;
  for (const { id, name, data } of events) {
    if (name === "points") {
      const points = JSON.parse(data) as MetricPoints;
      if (mayAffectWindow(metrics, points)) columns = limitPoints(appendPoints(columns, points), MAX_POINTS);
    } else if (name === "rewind") {
      const { step } = JSON.parse(data) as { step: number };
      columns = rewind(columns, step);
    }
    if (id !== "") cursor = id;
  }
  if (metrics.window !== null && columns !== metrics.columns) {
    const { from, to } = boundsOf(metrics.window, "last" in metrics.window ? lastStep(columns) : Infinity);
    columns = sliceSteps(columns, from, to);
  }
  return { ...metrics, columns, cursor };
}

function appendPoints(columns: Columns, { steps, series }: MetricPoints): Columns {
  const { seconds } = series;
  const merged = append(columns, steps, series);
  return seconds === undefined ? merged : appendElapsed(merged, steps, seconds);
}

/** Whether the points can be within the window of these metrics. */
function mayAffectWindow({ window }: LiveMetrics, { steps }: MetricPoints): boolean {
  return window === null || "last" in window || (steps[0] ?? Infinity) <= window.to;
}

/** Whether the metrics must be reloaded: a new attempt started, which the stream does not describe. */
export function needsReload(events: readonly StreamEvent[]): boolean {
  return events.some(({ name }) => name === "rewind");
}
