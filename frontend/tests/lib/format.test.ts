import { describe, expect, it } from "vitest";
import { bytes, dayText, decimal, duration, exactNumber, moment, percent, plural, powerOfTwo, rate, settingNumber, share, short, shortTime } from "@/lib/format";

describe("duration", () => {
  it.each([
    [0, "0 s"],
    [8.4, "8 s"],
    [59.6, "1 min"],
    [100, "1 min 40 s"],
    [299, "4 min 59 s"],
    [1_080, "18 min"],
    [4_500, "1 h 15 min"],
    [7_200, "2 h"],
    [183_600, "2 d 3 h"],
    [-1, "–"],
    [NaN, "–"],
  ])("formats %d seconds as %s", (seconds, text) => {
    expect(duration(seconds)).toBe(text);
  });
});

describe("numbers", () => {
  it.each([
    [441_037, "441,000"],
    [212_399, "212,400"],
    [8_606, "8,606"],
    [87.4, "87"],
    [3.14, "3.1"],
    [999_999, "1,000,000"],
  ])("rounds the rate %d to %s", (value, text) => {
    expect(rate(value)).toBe(text);
  });

  it.each([
    [3.1239, "3.124"],
    [437.1234, "437.1"],
    [0.0123, "0.0123"],
    [0.00001234, "1.23e-5"],
    [0, "0"],
    [12_345.6, "12,346"],
    [Infinity, "Infinity"],
    [136_558_821_376, "1.37e11"],
  ])("formats %d as %s", (value, text) => {
    expect(decimal(value)).toBe(text);
  });

  it.each([
    [124_439_808, "124 M"],
    [1_300_000_000, "1.3 B"],
    [360_768, "361 k"],
    [10_000, "10 k"],
    [9_999, "9,999"],
    [2_550, "2,550"],
    [257, "257"],
  ])("shortens %d to %s", (value, text) => {
    expect(short(value)).toBe(text);
  });

  it.each([
    [0, "0 B"],
    [855_000, "835 KiB"],
    [2_040_109_465, "1.9 GiB"],
    [1_048_576, "1 MiB"],
    [104_857_600, "100 MiB"],
  ])("formats %d bytes as %s", (value, text) => {
    expect(bytes(value)).toBe(text);
  });

  it.each([
    [0.0000004, "0 µs"],
    [0.00012, "120 µs"],
    [0.003, "3.0 ms"],
    [0.351, "351 ms"],
    [1.19, "1.19 s"],
    [75, "1 min 15 s"],
  ])("formats a duration of %d seconds as %s", (seconds, text) => {
    expect(shortTime(seconds)).toBe(text);
  });

  it("pluralizes", () => {
    expect([plural(1, "shard"), plural(3, "shard"), plural(0, "shard")]).toEqual(["1 shard", "3 shards", "0 shards"]);
  });
});

it("shows every digit of a setting, in the shortest form", () => {
  expect([0, 1, 0.003, 0.0003, 1e-8, 1.5e-5, 10_000, 0.95, 1e15, -0.0003].map(exactNumber)).toEqual(["0", "1", "0.003", "3e-4", "1e-8", "1.5e-5", "10,000", "0.95", "1e15", "-3e-4"]);
});

it("omits the date of times today", () => {
  const now = new Date(2026, 10, 21, 14, 0).getTime();
  expect(moment(new Date(2026, 10, 21, 13, 46).toISOString(), now)).toBe("13:46");
  expect(moment(new Date(2026, 10, 18, 13, 46).toISOString(), now)).toBe("18 Nov 13:46");
});

it("names today, and other days in full", () => {
  const now = new Date(2026, 10, 21, 15, 0).getTime();
  expect(dayText(new Date(2026, 10, 21, 0, 1).toISOString(), now)).toBe("Today");
  expect(dayText(new Date(2026, 10, 20, 23, 59).toISOString(), now)).toMatch(/^Friday,? 20 November 2026$/);
});

it("shows percentages with one decimal, except none and all", () => {
  expect([0, 0.0004, 0.382, 0.4, 0.9994, 0.9996, 1, 1.2].map(percent)).toEqual(["0", "0.0", "38.2", "40.0", "99.9", "100", "100", "120.0"]);
});

it("separates thousands of bytes", () => {
  expect(bytes(1_900 * 2 ** 40)).toBe("1,900 TiB");
});

it("rounds a setting that the run changes", () => {
  expect([0, 0.003, 0.0009, 0.00012345, 0.1].map(settingNumber)).toEqual(["0", "0.003", "9e-4", "1.23e-4", "0.1"]);
});

it("formats shares and powers of two", () => {
  expect([0, 1e-9, 1.04e-5, 0.0131, 0.28, 1].map(share)).toEqual(["0 %", "1e-7 %", "0.001 %", "1.3 %", "28 %", "100 %"]);
  expect([-13, 0, 4].map(powerOfTwo)).toEqual(["2⁻¹³", "2⁰", "2⁴"]);
});
