import { expect, test } from "vitest";
import { pairsOf, parseSampleSearch, samplesAt } from "@/features/runs/samples/sampleSteps";
import { linesOf, listOf } from "@/features/runs/spec/specFields";

const at = (step: number, ...texts: string[]) => ({
  step,
  attempt: 1,
  time: "2026-01-01T00:00:00Z",
  samples: texts.map((text, index) => ({ prompt: `prompt ${String(index)}`, text })),
});

test("the URL accepts only steps", () => {
  expect(parseSampleSearch({ sampled: 10, beside: "20" })).toEqual({ sampled: 10 });
  expect(parseSampleSearch({ sampled: -1, beside: 0.5 })).toEqual({});
});

test("the newest samples are shown first, and a thinned step shows the previous ones", () => {
  const written = [at(30), at(20), at(10)];
  expect(samplesAt(written, undefined)?.step).toBe(30);
  expect(samplesAt(written, 20)?.step).toBe(20);
  expect(samplesAt(written, 25)?.step).toBe(20);
  expect(samplesAt(written, 5)?.step).toBe(10);
  expect(samplesAt([], 5)).toBeUndefined();
});

test("two validations are paired by prompt", () => {
  expect(pairsOf([at(10, "a"), at(20, "b", "c")])).toEqual([
    { prompt: "prompt 0", texts: ["a", "b"] },
    { prompt: "prompt 1", texts: [null, "c"] },
  ]);
});

test.each([[["one", "two"]], [["first\nsecond", "a \\n b", "back\\slash", " spaces kept "]]])("a list of texts survives the form: %j", (texts) => {
  expect(listOf(linesOf(texts))).toEqual(texts);
});

test("blank lines are ignored", () => {
  expect(listOf("a\n\n  \nb\n")).toEqual(["a", "b"]);
});
