import type { SpecInfo } from "@/api/types";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import type { SpecValues } from "@/lib/specForm";

interface Props {
  presets: SpecInfo["presets"];
  values: SpecValues;
  onChange: (changed: SpecValues) => void;
}

const OWN = "own";

/** Fills the model section with a named size; every number stays open to change. */
export function PresetSelect({ presets, values, onChange }: Props) {
  const current = Object.keys(presets).find((name) => same(valuesOfPreset(presets, name), values)) ?? OWN;
  return (
    <div className="col-span-full max-w-md">
      <Field label="Preset" help="A named size. It fills the fields below, and each of them stays open to change.">
        {(control) => (
          <Select
            {...control}
            value={current}
            onChange={(event) => {
              onChange(valuesOfPreset(presets, event.target.value));
            }}
          >
            <option value={OWN} disabled>
              own numbers
            </option>
            {Object.entries(presets).map(([name, { layers, width }]) => (
              <option key={name} value={name}>
                {name}: {layers} layers, width {width}
              </option>
            ))}
          </Select>
        )}
      </Field>
    </div>
  );
}

function valuesOfPreset(presets: SpecInfo["presets"], name: string): SpecValues {
  const entries = Object.entries(presets[name] ?? {});
  return Object.fromEntries(entries.map(([key, value]) => [`model.${key}`, value === null ? "" : String(value)]));
}

function same(preset: SpecValues, values: SpecValues): boolean {
  return Object.entries(preset).every(([path, value]) => (values[path] ?? "") === value);
}
