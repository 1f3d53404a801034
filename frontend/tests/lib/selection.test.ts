import { expect, it } from "vitest";
import { NOTHING_CHOSEN, pressed, pressedAll } from "@/lib/selection";
import { rowsBetween } from "@/lib/useRowsInSight";

const IDS = ["a", "b", "c", "d"];

it("chooses one, the range to another, and takes them back", () => {
  const one = pressed(NOTHING_CHOSEN, IDS, "b", false);
  expect([...one.chosen]).toEqual(["b"]);
  const range = pressed(one, IDS, "d", true);
  expect([...range.chosen].sort()).toEqual(["b", "c", "d"]);
  expect([...pressed(range, IDS, "c", false).chosen].sort()).toEqual(["b", "d"]);
  expect([...pressed({ chosen: new Set(), from: "gone" }, IDS, "c", true).chosen]).toEqual(["c"]);
});

it("chooses all, and none where all were", () => {
  const all = pressedAll(NOTHING_CHOSEN, IDS);
  expect(all.chosen.size).toBe(4);
  expect(pressedAll(all, IDS).chosen.size).toBe(0);
});

it("draws the rows in sight and some around them, in bunches that do not change with every pixel", () => {
  const { begin, end } = rowsBetween(32_000, 32_900, 32);
  expect(begin).toBeLessThanOrEqual(1_000 - 24);
  expect(end).toBeGreaterThanOrEqual(1_029 + 24);
  expect(end - begin).toBeLessThan(120);
  expect(rowsBetween(32_004, 32_904, 32)).toEqual({ begin, end });
  expect(rowsBetween(-500, 0, 32).begin).toBe(0);
});
