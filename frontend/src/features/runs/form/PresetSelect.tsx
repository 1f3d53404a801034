import type { SpecInfo } from "@/api/types";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import type { SpecValues } from "@/features/runs/spec/specFields";

interface Props {
  presets: SpecInfo["presets"];
  values: SpecValues;
  onChange: (changed: SpecValues) => void;
}

const CUSTOM = "own";

/** Fills the model section with a preset; every field can still be changed. */
export function PresetSelect({ presets, values, onChange }: Props) {
  const current = Object.keys(presets).find((name) => matches(valuesOfPreset(presets, name), values)) ?? CUSTOM;
  return (
    <div className="col-span-full max-w-md">
      <Field label="Preset" help="A named model size. It fills in the fields below; you can still change each of them.">
        {(control) => (
          <Select
            {...control}
            value={current}
            onChange={(event) => {
              onChange(valuesOfPreset(presets, event.target.value));
            }}
          >
            <option value={CUSTOM} disabled>
              Custom
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

function matches(preset: SpecValues, values: SpecValues): boolean {
  return Object.entries(preset).every(([path, value]) => (values[path] ?? "") === value);
}
