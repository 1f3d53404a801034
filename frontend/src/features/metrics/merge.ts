import type { StreamEvent } from "@/api/events";
import type { MetricPoints } from "@/api/types";
import type { LiveMetrics } from "@/features/metrics/queries";
import { append, appendElapsed, bounded, lastStep, rewind, within, type Columns } from "@/lib/series";
import { boundsOf } from "@/lib/stepWindow";

/** Points of one series that are kept: several a pixel, however long the run is. */
export const MOST_POINTS = 6_000;

/** The metrics after some events of the stream, in the order in which they came; never more than `MOST_POINTS` a series. */
export function merge(metrics: LiveMetrics, events: readonly StreamEvent[]): LiveMetrics {
  let { columns, cursor } = metrics;
  for (const { id, name, data } of events) {
    if (name === "points") {
      const points = JSON.parse(data) as MetricPoints;
      if (begins(metrics, points)) columns = bounded(appended(columns, points), MOST_POINTS);
    } else if (name === "rewind") {
      const { step } = JSON.parse(data) as { step: number };
      columns = rewind(columns, step);
    }
    if (id !== "") cursor = id;
  }
  if (metrics.window !== null && columns !== metrics.columns) {
    const { from, to } = boundsOf(metrics.window, "last" in metrics.window ? lastStep(columns) : Infinity);
    columns = within(columns, from, to);
  }
  return { ...metrics, columns, cursor };
}

function appended(columns: Columns, { steps, series }: MetricPoints): Columns {
  const { seconds } = series;
  const merged = append(columns, steps, series);
  return seconds === undefined ? merged : appendElapsed(merged, steps, seconds);
}

/** Whether points can lie in the window that these metrics are of. */
function begins({ window }: LiveMetrics, { steps }: MetricPoints): boolean {
  return window === null || "last" in window || (steps[0] ?? Infinity) <= window.to;
}

/** Whether it must be loaded again: a new attempt began, which the stream does not describe. */
export function needsReload(events: readonly StreamEvent[]): boolean {
  return events.some(({ name }) => name === "rewind");
}
