import { useId } from "react";
import type { SpecInfo } from "@/api/types";
import { presetOf, presetsByFamily, valuesOfPreset } from "@/features/runs/form/presets";
import type { SpecField, SpecValues } from "@/features/runs/spec/specFields";
import { count, short } from "@/lib/format";

interface Props {
  info: SpecInfo;
  fields: readonly SpecField[];
  values: SpecValues;
  onChange: (changed: SpecValues) => void;
}

/** Model sizes to choose from, by family; a choice fills in the model's fields. */
export function PresetCards({ info, fields, values, onChange }: Props) {
  const current = presetOf(info.presets, values, fields);
  const choose = (name: string) => {
    onChange(valuesOfPreset(info.presets, name, fields));
  };
  const families = presetsByFamily(info);
  const radios = useId();
  return (
    <div role="radiogroup" aria-label="Preset" className="flex flex-col gap-3">
      {families.map(([family, names]) => (
        <div key={family} className="flex flex-col gap-1">
          {families.length > 1 && <p className="text-small text-soft">{family}</p>}
          <FamilyCards info={info} names={names} group={radios} current={current} onChoose={choose} />
        </div>
      ))}
      {current === undefined && (
        <p className="flex max-w-48 flex-col justify-center rounded-box border border-accent bg-raised px-3 py-2">
          <span className="font-medium">Custom</span>
          <span className="text-small text-soft">from the model settings</span>
        </p>
      )}
    </div>
  );
}

interface FamilyProps {
  info: SpecInfo;
  names: readonly string[];
  group: string;
  current: string | undefined;
  onChoose: (name: string) => void;
}

function FamilyCards({ info: { presets, preset_parameters: sizes }, names, group, current, onChoose }: FamilyProps) {
  return (
    <div className="grid grid-cols-[repeat(auto-fill,minmax(9.5rem,1fr))] tablet:grid-cols-[repeat(auto-fill,minmax(12rem,1fr))] gap-2">
      {names.map((name) => (
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
              onChoose(name);
            }}
          />
          <span className="flex items-baseline justify-between gap-x-2 whitespace-nowrap">
            <span className="font-medium">{name}</span>
            {sizes[name] !== undefined && (
              <span title={`${count(sizes[name])} parameters`}>
                {short(sizes[name])}
                <span className="sr-only"> parameters</span>
              </span>
            )}
          </span>
          <span className="text-small text-soft">
            {count(presets[name]?.layers ?? 0)} layers × {count(presets[name]?.width ?? 0)}
          </span>
        </label>
      ))}
    </div>
  );
}
