import { useId, useState } from "react";
import type { SpecInfo } from "@/api/types";
import { Select } from "@/components/Select";
import { presetOf, presetsByFamily, valuesOfPreset } from "@/features/runs/form/presets";
import type { SpecField, SpecValues } from "@/features/runs/spec/specFields";
import { count, short } from "@/lib/format";

interface Props {
  info: SpecInfo;
  fields: readonly SpecField[];
  values: SpecValues;
  onChange: (changed: SpecValues) => void;
}

/** Model sizes to choose from, one family at a time; a choice fills in the model's fields. */
export function PresetCards({ info, fields, values, onChange }: Props) {
  const current = presetOf(info.presets, values, fields);
  // The family that a person looks at, until another preset is chosen.
  const [visited, setVisited] = useState<{ family: string; preset: string | undefined } | null>(null);
  const families = presetsByFamily(info);
  const own = families.find(([, names]) => current !== undefined && names.includes(current)) ?? families[0];
  const [family, names] = (visited?.preset === current ? families.find(([name]) => name === visited?.family) : undefined) ?? own ?? ["", []];
  const radios = useId();
  return (
    <div className="flex flex-col items-start gap-3">
      {families.length > 1 && (
        <label className="flex flex-wrap items-center gap-2">
          <span>Family</span>
          <Select
            className="min-w-48"
            value={family}
            onChange={({ target }) => {
              setVisited({ family: target.value, preset: current });
            }}
          >
            {families.map(([name, { length }]) => (
              <option key={name} value={name}>{`${name} (${count(length)})`}</option>
            ))}
          </Select>
        </label>
      )}
      <div role="radiogroup" aria-label="Preset" className="flex w-full flex-col gap-3">
        <FamilyCards
          info={info}
          names={names}
          group={radios}
          current={current}
          onChoose={(name) => {
            onChange(valuesOfPreset(info.presets, name, fields));
          }}
        />
        {current === undefined && (
          <p className="flex max-w-48 flex-col justify-center rounded-box border border-accent bg-raised px-3 py-2">
            <span className="font-medium">Custom</span>
            <span className="text-small text-soft">from the model settings</span>
          </p>
        )}
        <p className="text-small text-soft">Parameters with each model's original vocabulary. The estimate uses the vocabulary of this run, so its number can differ.</p>
      </div>
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
    <div className="grid grid-cols-[repeat(auto-fill,minmax(9.5rem,1fr))] tablet:grid-cols-[repeat(auto-fill,minmax(11.5rem,1fr))] gap-2">
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
