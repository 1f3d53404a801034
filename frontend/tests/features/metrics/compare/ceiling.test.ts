import { expect, it } from "vitest";
import { ceilingOf } from "@/features/metrics/compare/ceiling";

const X = Array.from({ length: 100 }, (_, index) => index);
const lineOf = (valueAt: (x: number) => number | null) => ({ values: X.map(valueAt) });
const falling = lineOf((x) => 10 - x / 20);
const diverged = lineOf((x) => (x < 30 ? 10 - x / 20 : 1_500));

it("ends the axis above the usual values if one run diverged", () => {
  const ceiling = ceilingOf([falling, diverged, falling], X, null) ?? Infinity;
  expect(ceiling).toBeGreaterThan(10);
  expect(ceiling).toBeLessThan(25);
  expect(ceilingOf([falling, diverged], X, null)).toBe(ceiling);
});

it("counts the spikes of each run as unusual", () => {
  const spiking = lineOf((x) => (x === 50 ? 900 : 1));
  expect(ceilingOf([spiking, spiking], X, null)).toBe(2);
});

it.each([
  ["runs on different levels", [falling, lineOf(() => 40)], null],
  ["one run", [diverged], null],
  ["a diverged run that is alone, as the others have no values", [diverged, lineOf(() => null)], null],
  ["a range before the divergence", [falling, diverged], [0, 20] as const],
  ["a range in which no run has values", [falling, diverged], [200, 300] as const],
])("shows all values of %s", (_, lines, range) => {
  expect(ceilingOf(lines, X, range)).toBeUndefined();
});
