/** Texts of the values of charts: `…Text` in full, `…Tick` short enough for an axis. */

import { bytesParts, count, percent, short } from "@/lib/format";

export function percentText(value: number): string {
  return `${percent(value)} %`;
}

export function percentTick(value: number, step = 0): string {
  return plainNumber(value * 100, Math.max(1, decimalsOf(step * 100)));
}

/** `37 GiB`, `9.3 GiB`: short enough for an axis. */
export function bytesTick(value: number): string {
  const [number, unit] = bytesParts(value);
  const size = Number(number.replaceAll(",", ""));
  return `${size >= 10 ? Math.round(size) : Number(size.toFixed(1))} ${unit}`;
}

/** `1.73 cores` */
export function coresText(value: number): string {
  return `${Number(value.toPrecision(3))} ${value === 1 ? "core" : "cores"}`;
}

/** `412 W` */
export function wattsText(value: number): string {
  return `${count(value)} W`;
}

/** `61 °C` */
export function celsiusText(value: number): string {
  return `${count(value)} °C`;
}

export function shortTick(value: number): string {
  return short(value).replace(" ", "");
}

/** At least three digits, and as many as distinguish ticks that are `step` apart. */
export function tick(value: number, step = 0): string {
  if (value >= 10_000) return shortTick(value);
  if (Math.abs(value) >= 1_000) return count(value);
  if (Math.abs(value) < 1e-6) return String(Number(value.toPrecision(3)));
  return plainNumber(value, Math.max(decimalsOf(step), decimalsOf(Number(value.toPrecision(3)))));
}

/** Without trailing zeros. */
function plainNumber(value: number, decimals: number): string {
  return String(Number(value.toFixed(decimals)));
}

const MAX_DECIMALS = 12;

/** 0 of 20, 1 of 0.5, 4 of 0.0025 */
function decimalsOf(value: number): number {
  const digits = Number(value.toPrecision(3)).toFixed(MAX_DECIMALS).replace(/0+$/, "");
  return digits.length - digits.indexOf(".") - 1;
}
