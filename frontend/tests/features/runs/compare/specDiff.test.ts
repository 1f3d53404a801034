import { expect, it } from "vitest";
import { specDifferences } from "@/features/runs/compare/specDiff";

it("lists differing fields in the order of the spec, without the name", () => {
  const first = { name: "a", seed: 0, model: { layers: 2, width: 64 }, parallelism: { stages: "even" } };
  const second = { name: "b", seed: 1, model: { layers: 2, width: 128 }, parallelism: { stages: [1, 1] } };
  expect(specDifferences([first, second, first])).toEqual([
    { path: "seed", values: [0, 1, 0] },
    { path: "model.width", values: [64, 128, 64] },
    { path: "parallelism.stages", values: ["even", [1, 1], "even"] },
  ]);
  expect(specDifferences([first, { ...first, name: "c" }])).toEqual([]);
});

it("lists the fields of a section that only some have", () => {
  const without = { precision: { kind: "bf16", fp8: null } };
  const within = { precision: { kind: "fp8", fp8: { level: "O2" } } };
  expect(specDifferences([without, within])).toEqual([
    { path: "precision.kind", values: ["bf16", "fp8"] },
    { path: "precision.fp8.level", values: [undefined, "O2"] },
  ]);
});
