import { expect, it } from "vitest";
import { labelPlace } from "@/components/charts/chartOptions";

it("puts a label right of its line, left of it at the end, and nowhere if it would overprint its neighbour", () => {
  expect(labelPlace(100, 40, 4, 300, -Infinity)).toBe(104);
  expect(labelPlace(280, 40, 4, 300, 144)).toBe(236);
  expect(labelPlace(120, 40, 4, 300, 144)).toBeNull();
  expect(labelPlace(280, 40, 4, 300, 240)).toBeNull();
});
