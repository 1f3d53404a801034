import { expect, it, vi } from "vitest";
import { allItems } from "@/api/allItems";

it("loads every page of a list", async () => {
  const pages: Record<string, { items: number[]; next_cursor: string | null }> = {
    first: { items: [1, 2], next_cursor: "second" },
    second: { items: [3], next_cursor: null },
  };
  expect(await allItems((cursor = "first") => Promise.resolve(pages[cursor] ?? { items: [] }))).toEqual([1, 2, 3]);
});

it("stops if the cursors never end", async () => {
  const load = vi.fn(() => Promise.resolve({ items: [1], next_cursor: "again" }));
  expect(await allItems(load)).toHaveLength(100);
  expect(load).toHaveBeenCalledTimes(100);
});
