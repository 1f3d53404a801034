import { useId } from "react";
import type { SpecInfo } from "@/api/types";
import { presetOf, valuesOfPreset } from "@/features/runs/form/presets";
import type { SpecField, SpecValues } from "@/features/runs/spec/specFields";
import { count, short } from "@/lib/format";

interface Props {
  info: SpecInfo;
  fields: readonly SpecField[];
  values: SpecValues;
  onChange: (changed: SpecValues) => void;
}

/** Model sizes to choose from; a choice fills in the model's fields. */
export function PresetCards({ info, fields, values, onChange }: Props) {
  const group = useId();
  const { presets, preset_parameters: sizes } = info;
  const current = presetOf(presets, values, fields);
  return (
    <div role="radiogroup" aria-label="Preset" className="grid grid-cols-[repeat(auto-fill,minmax(8.75rem,1fr))] gap-2">
      {Object.entries(presets).map(([name, { layers, width }]) => (
        <label
          key={name}
          className="control relative flex cursor-pointer flex-col px-3 py-2 hover:bg-raised has-checked:border-accent has-checked:bg-raised has-checked:ring-1 has-checked:ring-accent has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent"
        >
          <input
            type="radio"
            name={group}
            className="sr-only"
            checked={name === current}
            onChange={() => {
              onChange(valuesOfPreset(presets, name, fields));
            }}
          />
          <span className="flex flex-wrap items-baseline justify-between gap-x-2">
            <span className="font-medium">{name}</span>
            {sizes[name] !== undefined && (
              <span title={`${count(sizes[name])} parameters`}>
                {short(sizes[name])}
                <span className="sr-only"> parameters</span>
              </span>
            )}
          </span>
          <span className="text-small text-soft">
            {count(layers)} layers × {count(width)}
          </span>
        </label>
      ))}
      {current === undefined && (
        <p className="flex flex-col justify-center rounded-box border border-accent bg-raised px-3 py-2">
          <span className="font-medium">Custom</span>
          <span className="text-small text-soft">from the model settings</span>
        </p>
      )}
    </div>
  );
}
