/**
 * Metrics of one run as columns: merging new points, downsampling, and conversion for charts. A column may hold
 * fewer points than were measured: the API and `downsample` drop points between extremes.
 */

export interface Column {
  steps: number[];
  values: number[];
}

export type Columns = Record<string, Column>;

/** Training time up to each step: summed by the API before downsampling, and continued here for streamed steps. */
export const ELAPSED = "elapsed_seconds";

/** Adds points by step. Existing steps are replaced, so that a repeated message changes nothing. */
export function append(columns: Columns, steps: readonly number[], series: Record<string, readonly number[]>): Columns {
  const merged = { ...columns };
  for (const [name, values] of Object.entries(series)) {
    merged[name] = appendColumn(columns[name] ?? { steps: [], values: [] }, steps, values);
  }
  return merged;
}

function appendColumn(column: Column, steps: readonly number[], values: readonly number[]): Column {
  const first = steps[0];
  if (first === undefined) return column;
  const earlier = upToStep(column, first - 1);
  const later = column.steps.length > earlier.steps.length ? afterStep(column, steps[steps.length - 1] ?? first) : null;
  return {
    steps: [...earlier.steps, ...steps, ...(later?.steps ?? [])],
    values: [...earlier.values, ...values, ...(later?.values ?? [])],
  };
}

/** Adds the elapsed time of steps from their durations. */
export function appendElapsed(columns: Columns, steps: readonly number[], seconds: readonly number[]): Columns {
  const column = upToStep(columns[ELAPSED] ?? { steps: [], values: [] }, (steps[0] ?? 0) - 1);
  let total = lastValue(column) ?? 0;
  const values = seconds.map((second) => (total += second));
  return append(columns, steps, { [ELAPSED]: values });
}

/** Drops everything after `step`: the run went back to a checkpoint. */
export function rewind(columns: Columns, step: number): Columns {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, upToStep(column, step)]));
}

/** The part of every series with `from` ≤ step ≤ `to`. */
export function sliceSteps(columns: Columns, from: number, to: number): Columns {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, afterStep(upToStep(column, to), from - 1)]));
}

/**
 * Limits every series to `maxPoints`. Longer ones are downsampled to about half of that, so that it happens
 * rarely.
 */
export function limitPoints(columns: Columns, maxPoints: number): Columns {
  const long = Object.values(columns).some(({ steps }) => steps.length > maxPoints);
  if (!long) return columns;
  return Object.fromEntries(
    Object.entries(columns).map(([name, column]) => [name, column.steps.length > maxPoints ? downsample(column, maxPoints / 2) : column]),
  );
}

/**
 * Downsamples a column to about `points`: the first, the last, and the minimum and maximum of equal ranges of
 * steps, so that every spike is kept. Repeated downsampling keeps the extremes.
 */
export function downsample(column: Column, points: number): Column {
  const { steps, values } = column;
  const length = steps.length;
  if (length <= points) return column;
  const [first, end] = [steps[0] ?? 0, steps[length - 1] ?? 0];
  const width = (end - first + 1) / Math.max(1, Math.floor(points / 2));
  const kept: number[] = [0];
  for (let start = 0, stretch = 1; start < length; stretch += 1) {
    let [low, high, next] = [start, start, start];
    for (; next < length && (steps[next] ?? 0) < first + stretch * width; next += 1) {
      const value = values[next] ?? 0;
      if (value < (values[low] ?? 0)) low = next;
      if (value > (values[high] ?? 0)) high = next;
    }
    if (next === start) continue;
    for (const index of low < high ? [low, high] : [high, low]) if (index > (kept[kept.length - 1] ?? 0)) kept.push(index);
    start = next;
  }
  if (kept[kept.length - 1] !== length - 1) kept.push(length - 1);
  return { steps: kept.map((index) => steps[index] ?? 0), values: kept.map((index) => values[index] ?? 0) };
}

function upToStep(column: Column, lastStep: number): Column {
  const end = upperBound(column.steps, lastStep);
  if (end === column.steps.length) return column;
  return { steps: column.steps.slice(0, end), values: column.values.slice(0, end) };
}

function afterStep(column: Column, step: number): Column {
  const start = upperBound(column.steps, step);
  if (start === 0) return column;
  return { steps: column.steps.slice(start), values: column.values.slice(start) };
}

/** Index of the first step greater than `step`. */
function upperBound(steps: readonly number[], step: number): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle] ?? Infinity) <= step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The values of the last consecutive steps, at most `maxPoints`; the other points of a downsampled column are
 * extremes.
 */
export function recentValues({ steps, values }: Column, maxPoints: number): number[] {
  let start = values.length - 1;
  while (start > 0 && values.length - start < maxPoints && (steps[start] ?? 0) - (steps[start - 1] ?? 0) === 1) start -= 1;
  return values.slice(Math.max(0, start));
}

export function lastValue(column: Column | undefined): number | undefined {
  return column?.values[column.values.length - 1];
}

export function lastStep(columns: Columns): number {
  return Math.max(0, ...Object.values(columns).map((column) => column.steps[column.steps.length - 1] ?? 0));
}

/** Whether a column has every step from its first to its last. */
export function isComplete({ steps }: Column): boolean {
  return steps.length > 0 && (steps[steps.length - 1] ?? 0) - (steps[0] ?? 0) === steps.length - 1;
}

/**
 * Exponential moving average with bias correction, so that the first values are not pulled towards zero. `weight`
 * 0 changes nothing, 0.99 smooths strongly. Gaps stay gaps.
 */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  let average = 0;
  let correction = 1;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    average = weight * average + (1 - weight) * value;
    correction *= weight;
    return average / (1 - correction);
  });
}

export type Axis = "step" | "tokens" | "time";

/** Converts steps to positions on the x axis and back. */
export interface AxisScale {
  at: (step: number) => number;
  /** The step, fractional between two steps. */
  stepAt: (x: number) => number;
}

/** A stable value, so that nothing is redrawn. */
const STEPS: AxisScale = { at: identity, stepAt: identity };

/** The scale of an axis, by linear interpolation between known steps. */
export function axisScale(columns: Columns, axis: Axis): AxisScale {
  const column = axis === "tokens" ? columns["tokens"] : axis === "time" ? columns[ELAPSED] : undefined;
  if (column === undefined || column.steps.length === 0) return STEPS;
  const inverse = { steps: column.values, values: column.steps };
  return { at: (step) => interpolate(column, step), stepAt: (x) => interpolate(inverse, x) };
}

function identity(value: number): number {
  return value;
}

function interpolate({ steps, values }: Column, step: number): number {
  const next = upperBound(steps, step);
  const [x0, y0] = next === 0 ? [0, 0] : [steps[next - 1] ?? 0, values[next - 1] ?? 0];
  if (next === steps.length) return y0;
  const [x1, y1] = [steps[next] ?? x0, values[next] ?? y0];
  return x1 === x0 ? y0 : y0 + ((y1 - y0) * (step - x0)) / (x1 - x0);
}

export interface JoinedColumns {
  steps: number[];
  values: (number | null)[][];
}

/** Several columns over the union of their steps; null where one has no value. */
export function join(columns: readonly (Column | undefined)[]): JoinedColumns {
  const [alone, ...others] = columns;
  if (alone !== undefined && others.every((other) => other === undefined || other.steps.length === 0)) {
    return { steps: alone.steps, values: [alone.values.map(finite), ...others.map(() => alone.steps.map(() => null))] };
  }
  const steps: number[] = [];
  const values: (number | null)[][] = columns.map(() => []);
  const heads = columns.map(() => 0);
  for (;;) {
    const next = columns.reduce((least, column, index) => Math.min(least, column?.steps[heads[index] ?? 0] ?? Infinity), Infinity);
    if (next === Infinity) return { steps, values };
    steps.push(next);
    columns.forEach((column, index) => {
      const head = heads[index] ?? 0;
      const here = column?.steps[head] === next;
      const value = here ? column.values[head] : undefined;
      values[index]?.push(finite(value));
      if (here) heads[index] = head + 1;
    });
  }
}

function finite(value: number | undefined): number | null {
  return value !== undefined && Number.isFinite(value) ? value : null;
}
