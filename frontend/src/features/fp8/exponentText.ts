import { decimal, powerOfTwo } from "@/lib/format";

/** `2^−9 (0.00195)`, `1`, or `0.0021` between two powers: a value on an axis of powers of two. */
export function exponentText(exponent: number): string {
  const value = decimal(2 ** exponent);
  return Number.isInteger(exponent) && exponent !== 0 ? `${powerOfTwo(exponent)} (${value})` : value;
}

/** `2^−9` or `1`; nothing between two powers. */
export function exponentTick(exponent: number): string {
  if (exponent === 0) return "1";
  return Number.isInteger(exponent) ? powerOfTwo(exponent) : "";
}
