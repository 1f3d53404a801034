import { describe, expect, it } from "vitest";
import { mergeEvents, MAX_POINTS, needsReload } from "@/features/metrics/live/mergeEvents";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";

const stored: LiveMetrics = { columns: { loss: { steps: [1, 2, 3], values: [9, 8, 7] } }, attempts: [], window: null, cursor: "1:100", loaded: 1 };
const points = { id: "2:40", name: "points", data: '{"attempt":2,"steps":[3,4],"series":{"loss":[7.5,6]}}' };
const back = { id: "2:0", name: "rewind", data: '{"step":2}' };

describe("mergeEvents", () => {
  it("adds points and remembers the cursor", () => {
    const merged = mergeEvents(stored, [points]);
    expect(merged.columns["loss"]).toEqual({ steps: [1, 2, 3, 4], values: [9, 8, 7.5, 6] });
    expect(merged.cursor).toBe("2:40");
  });

  it("applies rewinds and points in the order of the stream", () => {
    expect(mergeEvents(stored, [back, points]).columns["loss"]?.values).toEqual([9, 8, 7.5, 6]);
    expect(mergeEvents(stored, [points, back]).columns["loss"]?.steps).toEqual([1, 2]);
  });

  it("ignores unknown events", () => {
    expect(mergeEvents(stored, [{ id: "", name: "other", data: "{}" }])).toEqual(stored);
  });

  it("keeps no more points than a screen can show", () => {
    let metrics = stored;
    for (let begin = 4; begin < 50_000; begin += 1_000) {
      const steps = Array.from({ length: 1_000 }, (_, index) => begin + index);
      const data = JSON.stringify({ attempt: 1, steps, series: { loss: steps.map((step) => 1 / step) } });
      metrics = mergeEvents(metrics, [{ id: `1:${begin}`, name: "points", data }]);
      expect(metrics.columns["loss"]?.steps.length).toBeLessThanOrEqual(MAX_POINTS);
      expect(metrics.columns["loss"]?.steps.at(-1)).toBe(begin + 999);
    }
    expect(metrics.columns["loss"]?.steps[0]).toBe(1);
  });
});

describe("a window", () => {
  it("that follows the end drops older points", () => {
    expect(mergeEvents({ ...stored, window: { last: 2 } }, [points]).columns["loss"]).toEqual({ steps: [3, 4], values: [7.5, 6] });
  });

  it("in the past does not change", () => {
    const past = { ...stored, window: { from: 1, to: 2 } };
    expect(mergeEvents(past, [points]).columns).toBe(past.columns);
  });

  it("that is not full yet accepts points within it", () => {
    expect(mergeEvents({ ...stored, window: { from: 2, to: 3 } }, [points]).columns["loss"]).toEqual({ steps: [2, 3], values: [8, 7.5] });
  });
});

it("is reloaded after a rewind, not after points", () => {
  expect(needsReload([points])).toBe(false);
  expect(needsReload([back])).toBe(true);
});
