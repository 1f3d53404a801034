/** Metrics of one run as columns: merging what arrives, and turning them into what a chart draws. */

export interface Column {
  steps: number[];
  values: number[];
}

export type Columns = Record<string, Column>;

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

/** Forgets what lies after `step`: the run went back to a checkpoint. */
export function rewind(columns: Columns, step: number): Columns {
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, cut(column, step)]));
}

function cut(column: Column, lastStep: number): Column {
  const end = upperBound(column.steps, lastStep);
  if (end === column.steps.length) return column;
  return { steps: column.steps.slice(0, end), values: column.values.slice(0, end) };
}

function after(column: Column, step: number): Column {
  const start = upperBound(column.steps, step);
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

export function last(column: Column | undefined): number | undefined {
  return column?.values[column.values.length - 1];
}

export function lastStep(columns: Columns): number {
  return Math.max(0, ...Object.values(columns).map((column) => column.steps[column.steps.length - 1] ?? 0));
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

/** What stands on the x axis for each step, by linear interpolation between the steps that are known. */
export function axisOf(columns: Columns, axis: Axis): (step: number) => number {
  if (axis === "step") return (step) => step;
  const known = axis === "tokens" ? columns["tokens"] : elapsed(columns["seconds"]);
  if (known === undefined || known.steps.length === 0) return (step) => step;
  return (step) => interpolate(known, step);
}

/** Training time up to each step. Between two stored steps the later one's duration stands for all. */
function elapsed(seconds: Column | undefined): Column | undefined {
  if (seconds === undefined) return undefined;
  let total = 0;
  let previous = 0;
  const values = seconds.steps.map((step, index) => {
    total += (seconds.values[index] ?? 0) * Math.max(1, step - previous);
    previous = step;
    return total;
  });
  return { steps: seconds.steps, values };
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
  const steps = [...new Set(columns.flatMap((column) => column?.steps ?? []))].sort((a, b) => a - b);
  const position = new Map(steps.map((step, index) => [step, index]));
  const values = columns.map((column) => {
    const row: (number | null)[] = Array.from({ length: steps.length }, () => null);
    column?.steps.forEach((step, index) => {
      const at = position.get(step);
      const value = column.values[index];
      if (at !== undefined && value !== undefined && Number.isFinite(value)) row[at] = value;
    });
    return row;
  });
  return { steps, values };
}
