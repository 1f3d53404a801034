import type { ChartZoom } from "@/components/charts/chartOptions";
import type { Axis } from "@/lib/charts/series";
import { count, duration, short } from "@/lib/format";

const X_NAMES: Record<Axis, string> = { step: "step", tokens: "tokens", time: "training time" };
const X_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: short, time: duration };
/** If only a small part of the axis is visible, two digits are the same on each tick. */
const CLOSE_X_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: count, time: (value) => `${count(value)} s` };
const CLOSE_FRACTION = 0.05;

/** The name of a chart's x axis and the text of its values. */
export function axisTexts(axis: Axis, zoom: ChartZoom): { xName: string; xText: (value: number) => string } {
  return { xName: X_NAMES[axis], xText: (isZoomedIn(zoom) ? CLOSE_X_TEXTS : X_TEXTS)[axis] };
}

function isZoomedIn({ range }: ChartZoom): boolean {
  return range !== null && range[1] - range[0] < CLOSE_FRACTION * range[1];
}
