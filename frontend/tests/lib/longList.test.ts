import { describe, expect, it } from "vitest";
import { longList } from "@/lib/longList";

describe.each([1_000, 1_000_000, 50_000_000])("a list of %d rows", (rows) => {
  const list = longList(rows, 18, 540);

  it("is no taller than browsers can draw", () => {
    expect(list.height).toBeLessThan(17_000_000);
  });

  it("begins with the first row and ends with the last", () => {
    expect(list.inSight(0)).toEqual({ begin: 0, end: 30 });
    const bottom = list.height - 540;
    const { begin, end } = list.inSight(bottom);
    expect(end).toBe(rows);
    expect(end - begin).toBeGreaterThanOrEqual(30);
    expect(list.topOf(rows - 1, bottom)).toBeCloseTo(list.height - 18, 3);
  });

  it("has in sight what it was scrolled to, and draws it there", () => {
    const row = Math.floor(rows * 0.7);
    const scrolled = list.scrollTo(row);
    const { begin, end } = list.inSight(scrolled);
    expect(begin).toBeLessThan(row);
    expect(end).toBeGreaterThan(row);
    const offset = list.topOf(row, scrolled) - scrolled;
    expect(offset).toBeGreaterThanOrEqual(0);
    expect(offset).toBeLessThan(540);
  });
});
