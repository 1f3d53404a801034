/**
 * Metrics of one run as columns: merging what arrives, keeping it small, and turning it into what a chart draws.
 * A column may hold fewer points than were measured: the API and `thin` leave out what lies between extremes.
 */

export interface Column {
  steps: number[];
  values: number[];
}

export type Columns = Record<string, Column>;

/** Training time up to each step: the API sums it before it thins, and what is streamed goes on from there. */
export const ELAPSED = "elapsed_seconds";

/** Adds points, step by step; a step that is there already is replaced, so that a repeated message changes nothing. */
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
  const kept = cut(column, first - 1);
  const later = column.steps.length > kept.steps.length ? after(column, steps[steps.length - 1] ?? first) : null;
  return {
    steps: [...kept.steps, ...steps, ...(later?.steps ?? [])],
    values: [...kept.values, ...values, ...(later?.values ?? [])],
  };
}

/** Adds the time of steps that came with how long each took. */
export function appendElapsed(columns: Columns, steps: readonly number[], seconds: readonly number[]): Columns {
  const known = cut(columns[ELAPSED] ?? { steps: [], values: [] }, (steps[0] ?? 0) - 1);
  let total = last(known) ?? 0;
  const values = seconds.map((one) => (total += one));
  return append(columns, steps, { [ELAPSED]: values });
}

/** Forgets what lies after `step`: the run went back to a checkpoint. */
export function rewind(columns: Columns, step: number): Columns {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, cut(column, step)]));
}

/** Only what lies in `from` ≤ step ≤ `to`, in every series. */
export function within(columns: Columns, from: number, to: number): Columns {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, after(cut(column, to), from - 1)]));
}

/** Every series of at most `most` points; those with more keep about half as many, so that this is rare. */
export function bounded(columns: Columns, most: number): Columns {
  const long = Object.values(columns).some(({ steps }) => steps.length > most);
  if (!long) return columns;
  return Object.fromEntries(
    Object.entries(columns).map(([name, column]) => [name, column.steps.length > most ? thin(column, most / 2) : column]),
  );
}

/**
 * About `points` of a column: the first, the last, and the least and the greatest of equal stretches of steps, so that
 * every spike stays. Thinning what was thinned before keeps the extremes of both.
 */
export function thin(column: Column, points: number): Column {
  const { steps, values } = column;
  const length = steps.length;
  if (length <= points) return column;
  const [first, end] = [steps[0] ?? 0, steps[length - 1] ?? 0];
  const width = (end - first + 1) / Math.max(1, Math.floor(points / 2));
  const kept: number[] = [0];
  for (let begin = 0, stretch = 1; begin < length; stretch += 1) {
    let [low, high, next] = [begin, begin, begin];
    for (; next < length && (steps[next] ?? 0) < first + stretch * width; next += 1) {
      const value = values[next] ?? 0;
      if (value < (values[low] ?? 0)) low = next;
      if (value > (values[high] ?? 0)) high = next;
    }
    if (next === begin) continue;
    for (const index of low < high ? [low, high] : [high, low]) if (index > (kept[kept.length - 1] ?? 0)) kept.push(index);
    begin = next;
  }
  if (kept[kept.length - 1] !== length - 1) kept.push(length - 1);
  return { steps: kept.map((index) => steps[index] ?? 0), values: kept.map((index) => values[index] ?? 0) };
}

function cut(column: Column, lastStep: number): Column {
  const end = upperBound(column.steps, lastStep);
  if (end === column.steps.length) return column;
  return { steps: column.steps.slice(0, end), values: column.values.slice(0, end) };
}

function after(column: Column, step: number): Column {
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

/** The values of the last steps that lie side by side, at most `most`: of a thinned column others are its extremes. */
export function newest({ steps, values }: Column, most: number): number[] {
  let begin = values.length - 1;
  while (begin > 0 && values.length - begin < most && (steps[begin] ?? 0) - (steps[begin - 1] ?? 0) === 1) begin -= 1;
  return values.slice(Math.max(0, begin));
}

export function last(column: Column | undefined): number | undefined {
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
 * Exponential moving average, corrected for its start so that the first values are not pulled towards zero.
 * `weight` 0 changes nothing, 0.99 leaves little. Gaps stay gaps.
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

/** What stands on the x axis for each step, and the other way round. */
export interface Position {
  at: (step: number) => number;
  /** The step, a fraction where it lies between two. */
  stepAt: (x: number) => number;
}

/** The same each time, so that nothing is drawn anew. */
const STEPS: Position = { at: same, stepAt: same };

/** By linear interpolation between the steps that are known. */
export function axisOf(columns: Columns, axis: Axis): Position {
  const known = axis === "tokens" ? columns["tokens"] : axis === "time" ? columns[ELAPSED] : undefined;
  if (known === undefined || known.steps.length === 0) return STEPS;
  const turned = { steps: known.values, values: known.steps };
  return { at: (step) => interpolate(known, step), stepAt: (x) => interpolate(turned, x) };
}

function same(value: number): number {
  return value;
}

function interpolate({ steps, values }: Column, step: number): number {
  const next = upperBound(steps, step);
  const [x0, y0] = next === 0 ? [0, 0] : [steps[next - 1] ?? 0, values[next - 1] ?? 0];
  if (next === steps.length) return y0;
  const [x1, y1] = [steps[next] ?? x0, values[next] ?? y0];
  return x1 === x0 ? y0 : y0 + ((y1 - y0) * (step - x0)) / (x1 - x0);
}

export interface Joined {
  steps: number[];
  values: (number | null)[][];
}

/** Several columns over the union of their steps; null where one has no value. */
export function join(columns: readonly (Column | undefined)[]): Joined {
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
