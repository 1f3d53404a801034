import { expect, it } from "vitest";
import { exponentText, fractionText } from "@/features/fp8/exponentText";

it.each([
  [0, "1"],
  [-9, "2⁻⁹ (0.00195)"],
  [-8.9, "0.00209"],
])("writes the exponent %s as %s", (exponent, text) => {
  expect(exponentText(exponent)).toBe(text);
});

it.each([
  [0, "1"],
  [-2, "1/4"],
  [-10, "1/1,024"],
  [-0.5, "0.707"],
])("writes the exponent %s as the fraction %s", (exponent, text) => {
  expect(fractionText(exponent)).toBe(text);
});
