import { useMemo } from "react";
import { Chart } from "@/components/Chart";
import type { ChartMark, ChartScale, ChartZoom } from "@/components/chartOptions";
import type { ChartView } from "@/features/metrics/view";
import { count, duration, short } from "@/lib/format";
import { join, smooth, type Axis, type Columns } from "@/lib/series";

interface Named {
  label: string;
  name: string;
}

interface Props {
  title: string;
  /** One or two. */
  series: readonly [Named] | readonly [Named, Named];
  columns: Columns;
  position: (step: number) => number;
  marks: readonly ChartMark[];
  zoom: ChartZoom;
  coarse: boolean;
  view: ChartView;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: (value: number) => string;
}

const X_NAMES: Record<Axis, string> = { step: "step", tokens: "tokens", time: "training time" };
const X_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: short, time: duration };
/** Where little of the axis is shown, two figures of a number are the same from end to end. */
const CLOSE_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: count, time: (value) => `${count(value)} s` };
const CLOSE = 0.05;

/** One chart of a run's series, over the axis and with the smoothing that the person chose. */
export function SeriesChart({ title, series, columns, position, marks, zoom, coarse, view, scale, text, axisText }: Props) {
  const [first, second] = series.map(({ name }) => columns[name]);
  const { x, lines } = useMemo(() => {
    const joined = join(series.length === 1 ? [first] : [first, second]);
    return {
      x: joined.steps.map(position),
      lines: series.map(({ label }, index) => {
        const values = joined.values[index] ?? [];
        const smoothed = view.smooth > 0 && label !== "validation";
        return { label, color: index + 1, values: smooth(values, smoothed ? view.smooth : 0), raw: smoothed ? values : undefined };
      }),
    };
  }, [series, first, second, position, view.smooth]);
  return (
    <Chart
      title={title}
      group="run"
      x={x}
      xName={X_NAMES[view.x]}
      xText={(isClose(zoom) ? CLOSE_TEXTS : X_TEXTS)[view.x]}
      lines={lines}
      yText={text}
      axisText={axisText}
      scale={scale}
      marks={marks}
      zoom={zoom}
      coarse={coarse}
    />
  );
}

function isClose({ range }: ChartZoom): boolean {
  return range !== null && range[1] - range[0] < CLOSE * range[1];
}
