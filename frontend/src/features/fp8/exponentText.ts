import { decimal, powerOfTwo } from "@/lib/format";

/** `2⁻⁹ (0.00195)`, `1`, or `0.0021` between two powers: a value on an axis of powers of two. */
export function exponentText(exponent: number): string {
  const value = decimal(2 ** exponent);
  return Number.isInteger(exponent) && exponent !== 0 ? `${powerOfTwo(exponent)} (${value})` : value;
}

/** `2⁻⁹` or `2⁰`; nothing between two powers. */
export function exponentTick(exponent: number): string {
  return Number.isInteger(exponent) ? powerOfTwo(exponent) : "";
}
