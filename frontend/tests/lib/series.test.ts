import { describe, expect, it } from "vitest";
import { append, axisOf, join, last, lastStep, rewind, smooth, type Columns } from "@/lib/series";

const LOSS: Columns = { loss: { steps: [1, 2, 3], values: [9, 8, 7] } };

describe("append", () => {
  it("adds later steps and new series", () => {
    const merged = append(LOSS, [4, 5], { loss: [6, 5], mfu: [0.3, 0.4] });
    expect(merged["loss"]).toEqual({ steps: [1, 2, 3, 4, 5], values: [9, 8, 7, 6, 5] });
    expect(merged["mfu"]).toEqual({ steps: [4, 5], values: [0.3, 0.4] });
  });

  it("changes nothing when a message comes twice", () => {
    const once = append(LOSS, [4], { loss: [6] });
    expect(append(once, [4], { loss: [6] })).toEqual(once);
    expect(append(once, [2, 3], { loss: [8, 7] })).toEqual(once);
  });

  it("leaves the old columns as they were", () => {
    append(LOSS, [4], { loss: [6] });
    expect(LOSS["loss"]?.steps).toEqual([1, 2, 3]);
  });
});

it("rewind forgets what lies after the step in every series", () => {
  const columns: Columns = { ...LOSS, validation_loss: { steps: [3], values: [7.1] } };
  const before = rewind(columns, 2);
  expect(before["loss"]).toEqual({ steps: [1, 2], values: [9, 8] });
  expect(before["validation_loss"]).toEqual({ steps: [], values: [] });
  expect(lastStep(before)).toBe(2);
  expect(last(before["loss"])).toBe(8);
});

describe("smooth", () => {
  it("with weight 0 changes nothing", () => {
    expect(smooth([3, 1, 2], 0)).toEqual([3, 1, 2]);
  });

  it("keeps a constant constant from the first value on", () => {
    expect(smooth([2, 2, 2], 0.9)).toEqual([expect.closeTo(2), expect.closeTo(2), expect.closeTo(2)]);
  });

  it("weighs the past and keeps gaps", () => {
    const [first, gap, second] = smooth([1, null, 3], 0.5);
    expect([first, gap]).toEqual([1, null]);
    // (0.5·0.5·1 + 0.5·3) / (1 − 0.5²)
    expect(second).toBeCloseTo(1.75 / 0.75);
  });
});

describe("axisOf", () => {
  const columns: Columns = {
    tokens: { steps: [10, 20], values: [1_000, 2_000] },
    seconds: { steps: [1, 2, 4], values: [0.5, 0.5, 1] },
  };

  it("is the step itself by default, and where nothing is known", () => {
    expect(axisOf(columns, "step")(7)).toBe(7);
    expect(axisOf({}, "tokens")(7)).toBe(7);
  });

  it("interpolates tokens between the steps that are stored", () => {
    const tokens = axisOf(columns, "tokens");
    expect([tokens(5), tokens(15), tokens(20), tokens(25)]).toEqual([500, 1_500, 2_000, 2_000]);
  });

  it("adds up the time of steps, those between two stored ones included", () => {
    const time = axisOf(columns, "time");
    expect([time(1), time(2), time(3), time(4)]).toEqual([0.5, 1, 2, 3]);
  });
});

it("join puts series over the union of their steps", () => {
  const joined = join([LOSS["loss"], { steps: [2, 5], values: [8.1, NaN] }, undefined]);
  expect(joined.steps).toEqual([1, 2, 3, 5]);
  expect(joined.values).toEqual([
    [9, 8, 7, null],
    [null, 8.1, null, null],
    [null, null, null, null],
  ]);
});
