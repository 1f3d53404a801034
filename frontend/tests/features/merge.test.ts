import { describe, expect, it } from "vitest";
import { merge, needsReload } from "@/features/metrics/merge";

const stored = { columns: { loss: { steps: [1, 2, 3], values: [9, 8, 7] } }, attempts: [], cursor: "1:100", loaded: 1 };
const points = { id: "2:40", name: "points", data: '{"attempt":2,"steps":[3,4],"series":{"loss":[7.5,6]}}' };
const back = { id: "2:0", name: "rewind", data: '{"step":2}' };

describe("merge", () => {
  it("adds points and remembers where to go on from", () => {
    const merged = merge(stored, [points]);
    expect(merged.columns["loss"]).toEqual({ steps: [1, 2, 3, 4], values: [9, 8, 7.5, 6] });
    expect(merged.cursor).toBe("2:40");
  });

  it("goes back before it goes on, in the order of the stream", () => {
    expect(merge(stored, [back, points]).columns["loss"]?.values).toEqual([9, 8, 7.5, 6]);
    expect(merge(stored, [points, back]).columns["loss"]?.steps).toEqual([1, 2]);
  });

  it("passes over events it does not know", () => {
    expect(merge(stored, [{ id: "", name: "other", data: "{}" }])).toEqual(stored);
  });
});

it("loads all anew after a rewind, not after points", () => {
  expect(needsReload(stored, [points])).toBe(false);
  expect(needsReload(stored, [back])).toBe(true);
});
