/** Several series as a grid: one row per series, one column per range of steps, coloured by the value or its log2. */
import type { Column } from "@/lib/charts/series";

export interface HeatRow {
  label: string;
  column: Column;
}

export interface HeatColumn {
  from: number;
  to: number;
}

export interface HeatMap {
  labels: string[];
  columns: HeatColumn[];
  /** The largest value by row and column; null if none was measured. */
  cells: (number | null)[][];
  /** Logarithmic in powers of two, or linear if values are close together. */
  scale: HeatScale;
  /** The ends of the legend: the smallest and largest value, or their log2 rounded outwards. */
  low: number;
  high: number;
}

export type HeatScale = "log2" | "even";

/** Height of a map in pixels: rows are as tall as a line of text until there are many. */
export function heatHeight(rows: number): number {
  return Math.min(380, Math.max(150, rows * 26));
}

/** Each measured step has its own column up to `maxColumns`; beyond that, columns are equal ranges of steps. */
export function heatMapOf(rows: readonly HeatRow[], maxColumns: number, scale: HeatScale = "log2"): HeatMap {
  const columns = columnsOf([...new Set(rows.flatMap(({ column }) => column.steps))].sort((a, b) => a - b), maxColumns);
  const cells = rows.map(({ column }) => cellsOf(column, columns));
  const [low, high] = scale === "log2" ? exponentsOf(cells.flat()) : rangeOf(cells.flat());
  return { labels: rows.map(({ label }) => label), columns, cells, scale, low, high };
}

function exponentsOf(values: readonly (number | null)[]): [number, number] {
  const exponents = values.filter((value) => value !== null && value > 0).map((value) => Math.log2(value ?? 1));
  const low = exponents.reduce((least, exponent) => Math.min(least, Math.floor(exponent)), Infinity);
  const high = exponents.reduce((greatest, exponent) => Math.max(greatest, Math.ceil(exponent)), -Infinity);
  return exponents.length > 0 ? [low, Math.max(high, low + 1)] : [0, 1];
}

function rangeOf(values: readonly (number | null)[]): [number, number] {
  const low = values.reduce<number>((least, value) => Math.min(least, value ?? Infinity), Infinity);
  const high = values.reduce<number>((greatest, value) => Math.max(greatest, value ?? -Infinity), -Infinity);
  if (low === Infinity) return [0, 1];
  return [low, high > low ? high : low + (Math.abs(low) || 1)];
}

function columnsOf(steps: readonly number[], maxColumns: number): HeatColumn[] {
  if (steps.length <= maxColumns) return steps.map((step) => ({ from: step, to: step }));
  const first = steps[0] ?? 0;
  const width = ((steps[steps.length - 1] ?? 0) + 1 - first) / maxColumns;
  return Array.from({ length: maxColumns }, (_, index) => ({
    from: Math.ceil(first + index * width),
    to: Math.ceil(first + (index + 1) * width) - 1,
  }));
}

function cellsOf({ steps, values }: Column, columns: readonly HeatColumn[]): (number | null)[] {
  let at = 0;
  return columns.map(({ to }) => {
    let largest: number | null = null;
    for (; at < steps.length && (steps[at] ?? Infinity) <= to; at += 1) {
      const value = values[at];
      if (value !== undefined && Number.isFinite(value)) largest = Math.max(largest ?? value, value);
    }
    return largest;
  });
}

/** The position of a value between the ends of the legend, 0 to 1. Zero has no logarithm and is at the low end. */
export function shadeOf(value: number, { low, high, scale }: Pick<HeatMap, "low" | "high" | "scale">): number {
  if (scale === "log2" && value <= 0) return 0;
  const place = scale === "log2" ? Math.log2(value) : value;
  return Math.min(1, Math.max(0, (place - low) / (high - low)));
}

/** Viridis at nine points: even steps of lightness for every kind of colour vision. */
const VIRIDIS = [
  [68, 1, 84],
  [71, 44, 122],
  [59, 81, 139],
  [44, 113, 142],
  [33, 144, 141],
  [39, 173, 129],
  [92, 200, 99],
  [170, 220, 50],
  [253, 231, 37],
] as const;

/** Red, green and blue, 0 to 255, of a shade from 0 to 1. */
export function viridis(at: number): [number, number, number] {
  const place = Math.min(1, Math.max(0, at)) * (VIRIDIS.length - 1);
  const index = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const [from, to] = [VIRIDIS[index] ?? VIRIDIS[0], VIRIDIS[index + 1] ?? VIRIDIS[0]];
  const mixed = (channel: 0 | 1 | 2) => Math.round(from[channel] + (to[channel] - from[channel]) * (place - index));
  return [mixed(0), mixed(1), mixed(2)];
}

/** The full scale as a CSS gradient. */
export const VIRIDIS_GRADIENT = `linear-gradient(to right, ${VIRIDIS.map((color) => `rgb(${color.join(" ")})`).join(", ")})`;
