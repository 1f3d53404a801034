import { describe, expect, it } from "vitest";
import { virtualList } from "@/features/runs/log/virtualList";

const VIEW = 540;

describe.each([1_000, 1_000_000, 50_000_000])("a list of %d rows", (rows) => {
  const list = virtualList(rows, 18, VIEW);

  it("is no taller than browsers can render", () => {
    expect(list.height).toBeLessThan(17_000_000);
  });

  it("starts with the first row and ends with the last", () => {
    expect(list.visibleRows(0)).toEqual({ start: 0, end: 30 });
    expect(list.positionAt(list.height - VIEW)).toBeCloseTo(list.endPosition, 3);
    const { start, end } = list.visibleRows(list.endPosition);
    expect(end).toBe(rows);
    expect(end - start).toBeGreaterThanOrEqual(30);
    expect(list.topOf(rows - 1, list.endPosition)).toBeCloseTo(list.height - 18, 3);
  });

  it("shows the row it was scrolled to in the right place", () => {
    const row = Math.floor(rows * 0.7);
    const place = list.positionOf(row);
    const { start, end } = list.visibleRows(place);
    expect(start).toBeLessThan(row);
    expect(end).toBeGreaterThan(row);
    expect(list.topOf(row, place) - list.scrollTopAt(place)).toBeCloseTo(VIEW / 3, 3);
    expect(list.scrollTopAt(place) / list.height).toBeCloseTo(0.7, 1);
  });
});

it("a scroll position shows the same rows after more were added", () => {
  const [before, after] = [virtualList(1_000_000, 18, VIEW), virtualList(1_500_000, 18, VIEW)];
  const place = before.positionOf(400_000);
  expect(after.visibleRows(place)).toEqual(before.visibleRows(place));
  expect(after.scrollTopAt(place)).toBeLessThan(before.scrollTopAt(place));
});
