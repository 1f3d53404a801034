/** Named model sizes, as values of the form. */
import type { SpecInfo } from "@/api/types";
import type { SpecField, SpecValues } from "@/features/runs/spec/specFields";

type Presets = SpecInfo["presets"];

/** What an empty form starts from. */
export const INITIAL_PRESET = "micro";

/** Fills the model's fields; those that equal their defaults become empty. */
export function valuesOfPreset(presets: Presets, name: string, fields: readonly SpecField[]): SpecValues {
  const defaults = new Map(fields.map(({ path, defaultText }) => [path, defaultText]));
  return Object.fromEntries(
    Object.entries(presets[name] ?? {}).map(([key, value]): [string, string] => {
      const path = `model.${key}`;
      const text = value === null ? "" : String(value);
      return [path, text === defaults.get(path) ? "" : text];
    }),
  );
}

/** The preset that the form's model equals, if any. */
export function presetOf(presets: Presets, values: SpecValues, fields: readonly SpecField[]): string | undefined {
  const defaults = new Map(fields.map(({ path, defaultText }) => [path, defaultText]));
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
