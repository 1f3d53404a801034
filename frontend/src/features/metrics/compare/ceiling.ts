/** Where the y axis of a comparison ends, so that one diverged run does not flatten the others. */
import type { ChartLine } from "@/components/charts/chartOptions";

/** The part of a run's values that counts as usual; the others are spikes. */
const USUAL_FRACTION = 0.98;
/** Values up to this multiple of the usual ones are shown. */
const MAX_FACTOR = 10;
/** Where the axis ends if higher values exist, as a multiple of the usual ones. */
const CEILING_FACTOR = 2;

/**
 * The highest value to show of several runs, within a range of the x axis; undefined if all values fit. It refers to
 * the run in the middle: half of the runs have usual values as high or higher.
 */
export function ceilingOf(lines: readonly Pick<ChartLine, "values">[], x: readonly number[], range: readonly [number, number] | null): number | undefined {
  const [from, to] = range ?? [-Infinity, Infinity];
  const runs = lines
    .map(({ values }) => values.filter((value, index): value is number => value !== null && (x[index] ?? 0) >= from && (x[index] ?? 0) <= to).sort((a, b) => a - b))
    .filter(({ length }) => length > 0);
  if (runs.length < 2) return undefined;
  const usual = runs.map((values) => values[Math.floor(USUAL_FRACTION * (values.length - 1))] ?? 0).sort((a, b) => a - b);
  const middle = usual[Math.floor((usual.length - 1) / 2)] ?? 0;
  const highest = Math.max(...runs.map((values) => values[values.length - 1] ?? 0));
  return middle > 0 && highest > MAX_FACTOR * middle ? CEILING_FACTOR * middle : undefined;
}
