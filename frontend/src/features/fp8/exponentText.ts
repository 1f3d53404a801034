import { count, decimal, powerOfTwo } from "@/lib/format";

/** `2⁻⁹ (0.00195)`, `1`, or `0.0021` between two powers: a value on an axis of powers of two. */
export function exponentText(exponent: number): string {
  if (exponent === 0) return "1";
  const value = decimal(2 ** exponent);
  return Number.isInteger(exponent) ? `${powerOfTwo(exponent)} (${value})` : value;
}

/** `2⁻⁹` or `2⁰`; nothing between two powers. */
export function exponentTick(exponent: number): string {
  return Number.isInteger(exponent) ? powerOfTwo(exponent) : "";
}

/** `1`, `1/1,024`, or `0.0021` between two powers: a value of at most 1 on an axis of powers of two. */
export function fractionText(exponent: number): string {
  if (exponent === 0) return "1";
  return Number.isInteger(exponent) ? `1/${count(2 ** -exponent)}` : decimal(2 ** exponent);
}
