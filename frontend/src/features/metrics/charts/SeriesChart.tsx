import { useMemo } from "react";
import { Chart } from "@/components/charts/Chart";
import type { ChartMarker, ChartScale, ChartZoom } from "@/components/charts/chartOptions";
import type { ChartView } from "@/features/metrics/charts/chartView";
import { count, duration, short } from "@/lib/format";
import { join, smooth, type Axis, type Column, type Columns } from "@/lib/charts/series";

interface NamedSeries {
  label: string;
  name: string;
}

interface Props {
  title: string;
  /** One or two. */
  series: readonly [NamedSeries] | readonly [NamedSeries, NamedSeries];
  columns: Columns;
  position: (step: number) => number;
  markers: readonly ChartMarker[];
  zoom: ChartZoom;
  isPlaceholder: boolean;
  view: ChartView;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: (value: number) => string;
  /** Whether the lowest or the highest value is the best; undefined if neither is. */
  best?: "low" | "high";
}

const X_NAMES: Record<Axis, string> = { step: "step", tokens: "tokens", time: "training time" };
const X_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: short, time: duration };
/** If only a small part of the axis is visible, two digits are the same at every tick. */
const CLOSE_X_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: count, time: (value) => `${count(value)} s` };
const CLOSE_FRACTION = 0.05;

/** One chart of a run's series, with the selected axis and smoothing. */
export function SeriesChart({ title, series, columns, position, markers, zoom, isPlaceholder, view, scale, text, axisText, best }: Props) {
  const [first, second] = series.map(({ name }) => columns[name]);
  const { x, lines } = useMemo(() => {
    const joined = join(series.length === 1 ? [first] : [first, second]);
    return {
      x: joined.steps.map(position),
      lines: series.map(({ label }, index) => {
        const values = joined.values[index] ?? [];
        const smoothed = view.smooth > 0 && label !== "validation";
        // The caption says what was measured, whatever is drawn.
        const end = values.findLast((value) => value !== null);
        return { label, color: index + 1, values: smooth(values, smoothed ? view.smooth : 0), ...(smoothed ? { raw: values, end } : {}) };
      }),
    };
  }, [series, first, second, position, view.smooth]);
  return (
    <Chart
      title={title}
      group="run"
      x={x}
      xName={X_NAMES[view.x]}
      xText={(isZoomedIn(zoom) ? CLOSE_X_TEXTS : X_TEXTS)[view.x]}
      lines={lines}
      yText={text}
      axisText={axisText}
      scale={scale}
      markers={markers}
      zoom={zoom}
      isPlaceholder={isPlaceholder}
    >
      {best !== undefined && <p className="truncate text-small text-soft">{bestText(series, [first, second], best, text)}</p>}
    </Chart>
  );
}

/** `best train 2.05 at step 380, validation 2.14 at step 400` */
function bestText(series: readonly NamedSeries[], columns: readonly (Column | undefined)[], best: "low" | "high", text: (value: number) => string): string {
  const found = series.flatMap(({ label }, index) => {
    const { steps, values } = columns[index] ?? { steps: [], values: [] };
    let at = -1;
    for (const [place, value] of values.entries()) {
      const before = values[at];
      if (Number.isFinite(value) && (before === undefined || (best === "low" ? value < before : value > before))) at = place;
    }
    const value = values[at];
    return value === undefined ? [] : [`${series.length > 1 ? `${label} ` : ""}${text(value)} at step ${count(steps[at] ?? 0)}`];
  });
  return found.length === 0 ? "" : `best ${found.join(", ")}`;
}

function isZoomedIn({ range }: ChartZoom): boolean {
  return range !== null && range[1] - range[0] < CLOSE_FRACTION * range[1];
}
