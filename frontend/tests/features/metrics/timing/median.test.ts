import { expect, it } from "vitest";
import { median } from "@/features/metrics/timing/median";

it("is the middle value, or the mean of the middle two", () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 3, 2])).toBe(2.5);
  expect(median([7])).toBe(7);
  expect(median([])).toBe(0);
});
