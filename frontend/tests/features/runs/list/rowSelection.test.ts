import { expect, it } from "vitest";
import { EMPTY_SELECTION, toggleSelection, toggleAll } from "@/features/runs/list/rowSelection";
import { rowsBetween } from "@/lib/hooks/useVirtualRows";

const IDS = ["a", "b", "c", "d"];

it("selects one row, a range, and deselects them", () => {
  const one = toggleSelection(EMPTY_SELECTION, IDS, "b", false);
  expect([...one.selected]).toEqual(["b"]);
  const range = toggleSelection(one, IDS, "d", true);
  expect([...range.selected].sort()).toEqual(["b", "c", "d"]);
  expect([...toggleSelection(range, IDS, "c", false).selected].sort()).toEqual(["b", "d"]);
  expect([...toggleSelection({ selected: new Set(), anchor: "gone" }, IDS, "c", true).selected]).toEqual(["c"]);
});

it("selects all rows, or none if all were selected", () => {
  const all = toggleAll(EMPTY_SELECTION, IDS);
  expect(all.selected.size).toBe(4);
  expect(toggleAll(all, IDS).selected.size).toBe(0);
});

it("renders visible rows and a margin, in batches that do not change with every pixel", () => {
  const { start, end } = rowsBetween(32_000, 32_900, 32);
  expect(start).toBeLessThanOrEqual(1_000 - 24);
  expect(end).toBeGreaterThanOrEqual(1_029 + 24);
  expect(end - start).toBeLessThan(120);
  expect(rowsBetween(32_004, 32_904, 32)).toEqual({ start, end });
  expect(rowsBetween(-500, 0, 32).start).toBe(0);
});
