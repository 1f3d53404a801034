import { describe, expect, it } from "vitest";
import { append, appendElapsed, axisScale, limitPoints, isComplete, join, lastValue, lastStep, recentValues, rewind, smooth, downsample, sliceSteps, type Column, type Columns } from "@/lib/charts/series";

const LOSS: Columns = { loss: { steps: [1, 2, 3], values: [9, 8, 7] } };

describe("append", () => {
  it("adds later steps and new series", () => {
    const merged = append(LOSS, [4, 5], { loss: [6, 5], mfu: [0.3, 0.4] });
    expect(merged["loss"]).toEqual({ steps: [1, 2, 3, 4, 5], values: [9, 8, 7, 6, 5] });
    expect(merged["mfu"]).toEqual({ steps: [4, 5], values: [0.3, 0.4] });
  });

  it("changes nothing when a message is repeated", () => {
    const once = append(LOSS, [4], { loss: [6] });
    expect(append(once, [4], { loss: [6] })).toEqual(once);
    expect(append(once, [2, 3], { loss: [8, 7] })).toEqual(once);
  });

  it("does not modify the old columns", () => {
    append(LOSS, [4], { loss: [6] });
    expect(LOSS["loss"]?.steps).toEqual([1, 2, 3]);
  });
});

it("rewind drops everything after the step in every series", () => {
  const columns: Columns = { ...LOSS, validation_loss: { steps: [3], values: [7.1] } };
  const before = rewind(columns, 2);
  expect(before["loss"]).toEqual({ steps: [1, 2], values: [9, 8] });
  expect(before["validation_loss"]).toEqual({ steps: [], values: [] });
  expect(lastStep(before)).toBe(2);
  expect(lastValue(before["loss"])).toBe(8);
});

describe("smooth", () => {
  it("with weight 0 changes nothing", () => {
    expect(smooth([3, 1, 2], 0)).toEqual([3, 1, 2]);
  });

  it("keeps a constant constant from the first value on", () => {
    expect(smooth([2, 2, 2], 0.9)).toEqual([expect.closeTo(2), expect.closeTo(2), expect.closeTo(2)]);
  });

  it("weights the past and keeps gaps", () => {
    const [first, gap, second] = smooth([1, null, 3], 0.5);
    expect([first, gap]).toEqual([1, null]);
    // (0.5·0.5·1 + 0.5·3) / (1 − 0.5²)
    expect(second).toBeCloseTo(1.75 / 0.75);
  });
});

describe("axisOf", () => {
  const columns: Columns = {
    tokens: { steps: [10, 20], values: [1_000, 2_000] },
    elapsed_seconds: { steps: [1, 2, 4], values: [0.5, 1, 2.5] },
  };

  it("is the step itself by default and without data", () => {
    expect(axisScale(columns, "step").at(7)).toBe(7);
    expect(axisScale({}, "tokens").at(7)).toBe(7);
    expect(axisScale({}, "tokens").stepAt(7)).toBe(7);
  });

  it("interpolates tokens between stored steps", () => {
    const { at, stepAt } = axisScale(columns, "tokens");
    expect([at(5), at(15), at(20), at(25)]).toEqual([500, 1_500, 2_000, 2_000]);
    expect([stepAt(500), stepAt(1_500), stepAt(9_000)]).toEqual([5, 15, 20]);
  });

  it("interpolates the API's elapsed time", () => {
    const { at, stepAt } = axisScale(columns, "time");
    expect([at(1), at(2), at(3), at(4)]).toEqual([0.5, 1, 1.75, 2.5]);
    expect(stepAt(1.75)).toBe(3);
  });

  it("continues with streamed steps, even if repeated or rewound", () => {
    const live = appendElapsed(columns, [5, 6], [2, 3]);
    expect(axisScale(live, "time").at(6)).toBe(7.5);
    expect(appendElapsed(live, [6], [3])).toEqual(live);
    const again = appendElapsed(rewind(live, 5), [6], [1]);
    expect(axisScale(again, "time").at(6)).toBe(5.5);
  });
});

it("recentValues does not treat extremes of a downsampled column as neighbors", () => {
  expect(recentValues({ steps: [10, 20, 30], values: [1, 99, 2] }, 20)).toEqual([2]);
  expect(recentValues({ steps: [10, 28, 29, 30], values: [99, 1, 2, 3] }, 20)).toEqual([1, 2, 3]);
  expect(recentValues({ steps: [28, 29, 30], values: [1, 2, 3] }, 2)).toEqual([2, 3]);
  expect(recentValues({ steps: [], values: [] }, 2)).toEqual([]);
});

it("join aligns series on the union of their steps", () => {
  const joined = join([LOSS["loss"], { steps: [2, 5], values: [8.1, NaN] }, undefined]);
  expect(joined.steps).toEqual([1, 2, 3, 5]);
  expect(joined.values).toEqual([
    [9, 8, 7, null],
    [null, 8.1, null, null],
    [null, null, null, null],
  ]);
});

describe("downsample", () => {
  const steps = Array.from({ length: 10_000 }, (_, index) => index + 1);
  const wave: Column = { steps, values: steps.map((step) => (step === 4_321 ? 50 : step === 8_765 ? -50 : Math.sin(step))) };

  it("keeps about the allowed number of points, including the first, the last and every spike", () => {
    const few = downsample(wave, 400);
    expect(few.steps.length).toBeLessThanOrEqual(402);
    expect(few.steps.length).toBeGreaterThan(300);
    expect([few.steps[0], few.steps.at(-1)]).toEqual([1, 10_000]);
    expect([Math.max(...few.values), Math.min(...few.values)]).toEqual([50, -50]);
    expect(few.steps).toEqual([...new Set(few.steps)].sort((a, b) => a - b));
    expect(few.values.every((value, index) => value === wave.values[(few.steps[index] ?? 0) - 1])).toBe(true);
  });

  it("keeps spikes when repeated while points arrive", () => {
    let kept: Columns = {};
    for (let begin = 0; begin < 10_000; begin += 50) {
      kept = limitPoints(append(kept, steps.slice(begin, begin + 50), { wave: wave.values.slice(begin, begin + 50) }), 600);
    }
    const column = kept["wave"];
    expect(column?.steps.length).toBeLessThanOrEqual(600);
    expect(column?.steps.at(-1)).toBe(10_000);
    expect([Math.max(...(column?.values ?? [])), Math.min(...(column?.values ?? []))]).toEqual([50, -50]);
  });

  it("does not change short columns", () => {
    expect(limitPoints(LOSS, 3)).toBe(LOSS);
    expect(downsample(wave, 10_000)).toBe(wave);
  });
});

it("sliceSteps limits every series to a range of steps", () => {
  expect(sliceSteps(LOSS, 2, 2)["loss"]).toEqual({ steps: [2], values: [8] });
  expect(sliceSteps(LOSS, 4, 9)["loss"]).toEqual({ steps: [], values: [] });
});

it("isComplete distinguishes a complete series from a downsampled one", () => {
  expect(isComplete({ steps: [3, 4, 5], values: [1, 1, 1] })).toBe(true);
  expect(isComplete({ steps: [3, 5], values: [1, 1] })).toBe(false);
  expect(isComplete({ steps: [], values: [] })).toBe(false);
});
