import { describe, expect, it } from "vitest";
import { chooseTensor, layersOf, partsOf, seriesPattern, tensorOf, type Tensor } from "@/features/fp8/tensors";

const NAMES = [
  "fp8_amax/embedding.weight:gradient",
  "fp8_amax/layers.0.attention_norm.weight:gradient",
  ...[0, 2, 10].flatMap((layer) => [
    `fp8_amax/layers.${layer}.attention.query.weight:input`,
    `fp8_amax/layers.${layer}.attention.query.weight:gradient`,
    `fp8_amax/layers.${layer}.feed_forward.down.weight:output_gradient`,
  ]),
];
const TENSORS = NAMES.map(tensorOf).filter((tensor): tensor is Tensor => tensor !== null);

describe("tensorOf", () => {
  it("reads kind, part and layer from the name of a series", () => {
    expect(tensorOf("fp8_scale/layers.31.feed_forward.down.weight:output_gradient")).toEqual({
      kind: "output_gradient",
      part: "feed_forward.down",
      layer: 31,
    });
    expect(tensorOf("fp8_amax/embedding.weight:weight")).toEqual({ kind: "weight", part: "embedding", layer: null });
  });

  it.each(["loss", "fp8_saturated", "fp8_amax/", "fp8_amax/layers.0.attention.query.weight", "fp8_amax/a.weight:momentum", "x/a.weight:input"])(
    "knows that %s is of no tensor",
    (name) => {
      expect(tensorOf(name)).toBeNull();
    },
  );
});

it("lists parts in layer order, and layers by number", () => {
  expect(partsOf(TENSORS, "gradient")).toEqual(["attention.query", "attention_norm", "embedding"]);
  expect(partsOf(TENSORS, "weight")).toEqual([]);
  expect(layersOf(TENSORS, "input", "attention.query")).toEqual([0, 2, 10]);
  expect(layersOf(TENSORS, "gradient", "embedding")).toEqual([null]);
});

describe("chooseTensor", () => {
  it("uses the requested tensor as far as it exists", () => {
    expect(chooseTensor(TENSORS, {})).toEqual({ kind: "input", part: "attention.query", layer: 0 });
    expect(chooseTensor(TENSORS, { kind: "gradient", part: "attention.query", layer: 10 })).toEqual({
      kind: "gradient",
      part: "attention.query",
      layer: 10,
    });
    expect(chooseTensor(TENSORS, { kind: "weight", part: "nothing", layer: 99 })).toEqual({
      kind: "input",
      part: "attention.query",
      layer: 0,
    });
    expect(chooseTensor(TENSORS, { kind: "gradient", part: "embedding", layer: 2 })?.layer).toBeNull();
  });

  it("chooses nothing before any measurement", () => {
    expect(chooseTensor([], { kind: "input" })).toBeNull();
  });
});

it("matches one series of one tensor, or those of all its layers", () => {
  const query = { kind: "input", part: "attention.query", layer: 2 } as const;
  expect(seriesPattern("scale", NAMES, query, false)).toBe("fp8_scale/layers.2.attention.query.weight:input");
  expect(seriesPattern("amax", NAMES, query, true)).toBe("fp8_amax/layers.*.attention.query.weight:input");
  const embedding = { kind: "gradient", part: "embedding", layer: null } as const;
  expect(seriesPattern("amax", NAMES, embedding, true)).toBe("fp8_amax/embedding.weight:gradient");
});
