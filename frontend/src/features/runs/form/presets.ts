/** Named model sizes, as values of the form. */
import type { SpecInfo } from "@/api/types";
import { leaves, textOf, type Json, type SpecField, type SpecValues } from "@/features/runs/spec/specFields";

type Presets = SpecInfo["presets"];

/** What an empty form starts from. */
export const INITIAL_PRESET = "micro";

/** Fills the model's fields; those that equal their defaults become empty, except in a section that exists only if it is filled. */
export function valuesOfPreset(presets: Presets, name: string, fields: readonly SpecField[]): SpecValues {
  const preset = presets[name];
  if (preset === undefined) return {};
  const defaults = defaultsOf(fields);
  const empty = fields.map(({ path }): [string, string] => [path, ""]).filter(([path]) => path.startsWith("model."));
  const filled = leaves(preset as unknown as Json, "model").map(([path, value]): [string, string] => {
    const text = value === null ? "" : textOf(value);
    return [path, text === defaults.get(path) ? "" : text];
  });
  return Object.fromEntries([...empty, ...filled]);
}

/** The values of empty fields by path; none in a section of the model, which is null if all its fields are empty. */
function defaultsOf(fields: readonly SpecField[]): Map<string, string> {
  return new Map(fields.map(({ path, defaultText }) => [path, path.split(".").length > 2 ? "" : defaultText]));
}

/** The preset that the form's model equals, if any. */
export function presetOf(presets: Presets, values: SpecValues, fields: readonly SpecField[]): string | undefined {
  const defaults = defaultsOf(fields);
  const effective = (path: string, text: string | undefined) => text?.trim() || defaults.get(path) || "";
  return Object.keys(presets).find((name) =>
    Object.entries(valuesOfPreset(presets, name, fields)).every(([path, text]) => effective(path, values[path]) === effective(path, text)),
  );
}

/** The names of presets, by family; one without a family is among the first. */
export function presetsByFamily({ presets, preset_families: families }: Pick<SpecInfo, "presets" | "preset_families">): [string, string[]][] {
  const first = Object.values(families)[0] ?? "";
  const found = new Map<string, string[]>();
  for (const name of Object.keys(presets)) {
    const family = families[name] ?? first;
    found.set(family, [...(found.get(family) ?? []), name]);
  }
  return [...found];
}
