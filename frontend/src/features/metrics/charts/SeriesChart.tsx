import { useMemo } from "react";
import { Chart } from "@/components/charts/Chart";
import type { AxisText, ChartMarker, ChartScale, ChartZoom } from "@/components/charts/chartOptions";
import { axisTexts } from "@/features/metrics/charts/axisTexts";
import type { ChartView } from "@/features/metrics/charts/chartView";
import { smoothingOf } from "@/features/metrics/charts/seriesStyle";
import { count } from "@/lib/format";
import { join, smooth, type Column, type Columns } from "@/lib/charts/series";

interface NamedSeries {
  label: string;
  name: string;
}

export type SeriesPair = readonly [NamedSeries] | readonly [NamedSeries, NamedSeries];

/** What all charts of a run share. */
export interface ChartFrame {
  columns: Columns;
  position: (step: number) => number;
  markers: readonly ChartMarker[];
  zoom: ChartZoom;
  isPlaceholder: boolean;
  view: ChartView;
}

interface Props extends ChartFrame {
  title: string;
  series: SeriesPair;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: AxisText;
  /** Whether the lowest or the highest value is the best; undefined if neither is. */
  best?: "low" | "high";
}

/** One chart of a run's series, with the selected axis and smoothing. */
export function SeriesChart({ title, series, columns, position, markers, zoom, isPlaceholder, view, scale, text, axisText, best }: Props) {
  const [first, second] = series.map(({ name }) => columns[name]);
  const { x, lines } = useMemo(() => {
    const joined = join(series.length === 1 ? [first] : [first, second]);
    return {
      x: joined.steps.map(position),
      lines: series.map(({ label, name }, index) => {
        const values = joined.values[index] ?? [];
        const smoothing = smoothingOf(name, view.smooth);
        // The caption says what was measured, independently of smoothing and axis.
        const end = values.findLast((value) => value !== null);
        return { label, color: index + 1, values: smooth(values, smoothing), ...(smoothing > 0 ? { raw: values, end } : {}) };
      }),
    };
  }, [series, first, second, position, view.smooth]);
  return (
    <Chart
      title={title}
      group="run"
      x={x}
      {...axisTexts(view.x, zoom)}
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

/** `best: train 2.05 at step 380, validation 2.14 at step 400` */
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
  return found.length === 0 ? "" : `best${series.length > 1 ? ":" : ""} ${found.join(", ")}`;
}
