import { expect, it } from "vitest";
import type { SpecInfo } from "@/api/types";
import { presetOf, valuesOfPreset } from "@/features/runs/form/presets";
import { sectionsOf, specOf } from "@/features/runs/spec/specFields";

const SCALING = { properties: { rope_type: { enum: ["llama3", "yarn"], default: "llama3" }, factor: { type: "number", default: 8 } } };
const MODEL = {
  properties: { layers: { type: "integer", default: 6 }, rope_scaling: { anyOf: [{ $ref: "#/$defs/Scaling" }, { type: "null" }], default: null } },
};
const FIELDS = sectionsOf({ $defs: { Scaling: SCALING }, properties: { model: MODEL } }).flatMap((section) => section.fields);
const PRESETS = {
  plain: { layers: 6, rope_scaling: null },
  scaled: { layers: 6, rope_scaling: { rope_type: "llama3", factor: 8 } },
} as unknown as SpecInfo["presets"];

it("fills an optional section although its values are the defaults, and empties it again", () => {
  const scaled = valuesOfPreset(PRESETS, "scaled", FIELDS);
  expect(specOf(scaled, FIELDS)).toEqual({ model: { rope_scaling: { rope_type: "llama3", factor: 8 } } });
  expect(specOf({ ...scaled, ...valuesOfPreset(PRESETS, "plain", FIELDS) }, FIELDS)).toEqual({});
});

it.each(["plain", "scaled"])("recognizes the preset %s", (name) => {
  expect(presetOf(PRESETS, valuesOfPreset(PRESETS, name, FIELDS), FIELDS)).toBe(name);
});
