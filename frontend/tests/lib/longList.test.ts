import { describe, expect, it } from "vitest";
import { longList } from "@/lib/longList";

const VIEW = 540;

describe.each([1_000, 1_000_000, 50_000_000])("a list of %d rows", (rows) => {
  const list = longList(rows, 18, VIEW);

  it("is no taller than browsers can draw", () => {
    expect(list.height).toBeLessThan(17_000_000);
  });

  it("begins with the first row and ends with the last", () => {
    expect(list.inSight(0)).toEqual({ begin: 0, end: 30 });
    expect(list.placeAt(list.height - VIEW)).toBeCloseTo(list.last, 3);
    const { begin, end } = list.inSight(list.last);
    expect(end).toBe(rows);
    expect(end - begin).toBeGreaterThanOrEqual(30);
    expect(list.topOf(rows - 1, list.last)).toBeCloseTo(list.height - 18, 3);
  });

  it("has in sight what it was led to, and draws it there", () => {
    const row = Math.floor(rows * 0.7);
    const place = list.placeOf(row);
    const { begin, end } = list.inSight(place);
    expect(begin).toBeLessThan(row);
    expect(end).toBeGreaterThan(row);
    expect(list.topOf(row, place) - list.scrolledAt(place)).toBeCloseTo(VIEW / 3, 3);
    expect(list.scrolledAt(place) / list.height).toBeCloseTo(0.7, 1);
  });
});

it("a place shows the same rows after more were added", () => {
  const [before, after] = [longList(1_000_000, 18, VIEW), longList(1_500_000, 18, VIEW)];
  const place = before.placeOf(400_000);
  expect(after.inSight(place)).toEqual(before.inSight(place));
  expect(after.scrolledAt(place)).toBeLessThan(before.scrolledAt(place));
});
