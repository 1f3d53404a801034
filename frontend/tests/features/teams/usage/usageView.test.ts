import { expect, it } from "vitest";
import { axisTop, devicesOf, fillDays, hoursText, parseUsageSearch } from "@/features/teams/usage/usageView";

const NOW = Date.parse("2026-11-22T01:00:00Z");

it("shows every day of the period up to today in UTC, used or not", () => {
  const used = [
    { day: "2026-11-20", device: "cpu", slot_hours: 3 },
    { day: "2026-11-20", device: "cuda", slot_hours: 9 },
  ];
  expect(fillDays(used, "cpu", 3, NOW)).toEqual([
    { day: "2026-11-20", hours: 3 },
    { day: "2026-11-21", hours: 0 },
    { day: "2026-11-22", hours: 0 },
  ]);
  expect(devicesOf(used)).toEqual(["cuda", "cpu"]);
});

it("accepts only the periods it offers", () => {
  expect(parseUsageSearch({ days: 90 })).toEqual({ days: "90" });
  expect(parseUsageSearch({ days: "12" })).toEqual({});
});

it.each([
  [0, "0"],
  [0.004, "< 0.01"],
  [0.0144, "0.014"],
  [3.26, "3.3"],
  [1234.4, "1,234"],
])("formats %s hours as %s", (hours, text) => {
  expect(hoursText(hours)).toBe(text);
});

it.each([
  [0, 1],
  [0.014, 0.02],
  [3, 5],
  [5, 5],
  [51, 100],
])("ends the axis for %s at %s", (value, top) => {
  expect(axisTop(value)).toBeCloseTo(top);
});
