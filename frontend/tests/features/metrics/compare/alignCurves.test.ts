import { expect, it } from "vitest";
import { alignCurves } from "@/features/metrics/compare/alignCurves";

it("aligns curves with different steps on their union", () => {
  const both = alignCurves(
    [
      { x: [1, 2, 3], values: [9, 8, 7] },
      { x: [2, 4], values: [5, Number.NaN] },
    ],
    10,
  );
  expect(both).toEqual({
    x: [1, 2, 3, 4],
    values: [
      [9, 8, 7, null],
      [null, 5, null, null],
    ],
  });
});

it("keeps the minimum and maximum of each bucket in order, however many points there are", () => {
  const steps = Array.from({ length: 10_000 }, (_, index) => index);
  const rising = steps.map((step) => (step === 4_321 ? 1e6 : step));
  const falling = steps.map((step) => (step === 1_234 ? -1e6 : -step));
  const { x, values } = alignCurves(
    [
      { x: steps, values: rising },
      { x: steps, values: falling },
    ],
    200,
  );
  expect(x).toHaveLength(200);
  expect(x).toEqual(x.toSorted((a, b) => a - b));
  const [up = [], down = []] = values;
  expect(Math.max(...up.map((value) => value ?? 0))).toBe(1e6);
  expect(Math.min(...down.map((value) => value ?? 0))).toBe(-1e6);
  const calm = up.filter((value) => value !== 1e6).map((value) => value ?? -1);
  expect(calm).toEqual(calm.toSorted((a, b) => a - b));
  expect(calm[0]).toBe(0);
  expect(calm[calm.length - 1]).toBe(9_999);
});

it("is empty without curves", () => {
  expect(alignCurves([], 10)).toEqual({ x: [], values: [] });
  expect(alignCurves([{ x: [], values: [] }], 10)).toEqual({ x: [], values: [[]] });
});
