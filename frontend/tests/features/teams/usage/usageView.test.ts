import { expect, it } from "vitest";
import { axisTop, devicesOf, fillDays, hoursByPerson, memberUsageCsv, parseUsageSearch, PERSON_COLORS, quotaFraction, quotaNote } from "@/features/teams/usage/usageView";
import { hoursText } from "@/lib/format";

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

const DAYS = ["2026-11-21", "2026-11-22"];

function used(day: string, user: string | null, hours: number, device = "cpu") {
  return { day, user, name: user ?? "", in_team: true, service: false, device, slot_hours: hours };
}

it("stacks the hours of people by day, the most first", () => {
  const found = hoursByPerson([used("2026-11-21", "ada", 2), used("2026-11-22", "ada", 1), used("2026-11-22", null, 5), used("2026-11-22", "bob", 9, "cuda")], "cpu", DAYS);
  expect(found).toEqual([
    { key: "", name: "Unknown", total: 5, hours: [0, 5] },
    { key: "ada", name: "ada", total: 3, hours: [2, 1] },
  ]);
});

it("shows as many people as there are colors, and loses no hours", () => {
  const many = Array.from({ length: 12 }, (_, index) => used("2026-11-21", `person ${index}`, index + 1));
  const found = hoursByPerson(many, "cpu", DAYS);
  expect(found).toHaveLength(PERSON_COLORS.length);
  expect(found.at(-1)?.name).toBe("5 others");
  expect(found.reduce((sum, { total }) => sum + total, 0)).toBe(78);
  expect(found.reduce((sum, { hours }) => sum + (hours[0] ?? 0), 0)).toBe(78);
});

it("writes usage as CSV in full precision", () => {
  expect(memberUsageCsv([used("2026-11-21", "ada", 1 / 3), used("2026-11-21", null, 2)])).toBe(
    "day,user,name,device,slot_hours\r\n2026-11-21,ada,ada,cpu,0.3333333333333333\r\n2026-11-21,,,cpu,2\r\n",
  );
});

it("says how many slots the nodes have if that is less than the limit, and how many are guaranteed and borrowed", () => {
  const quota = { device: "cpu" as const, used: 3, limit: 8, joined: 4, guaranteed_slots: 2 };
  expect(quotaNote(quota)).toBe("only 4 on the nodes, 2 guaranteed, 1 borrowed");
  expect(quotaNote({ ...quota, joined: 8, guaranteed_slots: 0 })).toBeUndefined();
});

it.each([
  [8, 4, 0.75],
  [8, 16, 0.375],
  [8, null, 0.375],
  [0, 4, 0],
  [8, 0, 0],
])("measures slots in use by what the team can get (limit %d, nodes %s)", (limit, joined, fraction) => {
  expect(quotaFraction({ device: "cpu", used: 3, limit, joined, guaranteed_slots: 0 })).toBe(fraction);
});
