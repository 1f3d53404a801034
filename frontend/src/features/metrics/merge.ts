import type { StreamEvent } from "@/api/events";
import type { MetricPoints } from "@/api/types";
import type { LiveMetrics } from "@/features/metrics/queries";
import { append, rewind } from "@/lib/series";

/** The metrics after some events of the stream, in the order in which they came. */
export function merge(metrics: LiveMetrics, events: readonly StreamEvent[]): LiveMetrics {
  let { columns, cursor } = metrics;
  for (const { id, name, data } of events) {
    if (name === "points") {
      const points = JSON.parse(data) as MetricPoints;
      columns = append(columns, points.steps, points.series);
    } else if (name === "rewind") {
      const { step } = JSON.parse(data) as { step: number };
      columns = rewind(columns, step);
    }
    if (id !== "") cursor = id;
  }
  return { ...metrics, columns, cursor };
}

/** Whether the whole must be loaded again: a new attempt began, or there are far more points than pixels. */
export function needsReload(metrics: LiveMetrics, events: readonly StreamEvent[]): boolean {
  const longest = Math.max(0, ...Object.values(metrics.columns).map((column) => column.steps.length));
  return longest > 6_000 || events.some(({ name }) => name === "rewind");
}
