import type { ReactNode } from "react";
import type { Dataset } from "@/api/types";
import { Field, type FieldControl } from "@/components/Field";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";
import { fieldId } from "@/features/runs/fieldId";
import { NONE, type SpecField } from "@/lib/specForm";

interface Props {
  field: SpecField;
  value: string;
  problem: string | undefined;
  datasets: readonly Dataset[];
  onChange: (value: string) => void;
}

/** One field of the spec: its control, its sentence, its default. */
export function SpecFieldInput({ field, value, problem, datasets, onChange }: Props) {
  return (
    <Field
      id={fieldId(field.path)}
      label={field.path === "data.dataset" ? "Dataset" : field.label}
      help={helpOf(field)}
      error={problem}
    >
      {(control) => inputOf(field, value, datasets, control, onChange)}
    </Field>
  );
}

function inputOf(
  field: SpecField,
  value: string,
  datasets: readonly Dataset[],
  control: FieldControl,
  onChange: (value: string) => void,
) {
  if (field.path === "data.dataset") {
    const options = datasets.map(({ id, name }): [string, string] => [id, name]);
    return select(control, value, datasets.length === 0 ? "no datasets yet: upload one first" : "choose a dataset", options, onChange);
  }
  if (field.kind === "switch") {
    return select(control, value, `default: ${field.standard === "true" ? "yes" : "no"}`, SWITCH, onChange);
  }
  if (field.kind === "choice") {
    const options = field.choices.map((choice): [string, string] => [choice, choice]);
    return select(control, value, `default: ${field.standard}`, options, onChange);
  }
  const off = field.canBeOff && value === NONE;
  const input = (
    <TextInput
      {...control}
      inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : "text"}
      autoComplete="off"
      spellCheck={false}
      required={field.required}
      placeholder={off ? "off" : field.standard}
      value={off ? "" : value}
      onChange={(event) => {
        onChange(event.target.value);
      }}
    />
  );
  return field.canBeOff ? <WithOff label={field.label} off={off} onChange={onChange} input={input} /> : input;
}

interface WithOffProps {
  label: string;
  off: boolean;
  onChange: (value: string) => void;
  input: ReactNode;
}

/** A control whose emptiness means its default, and beside it the choice of none; typing takes that back. */
function WithOff({ label, off, onChange, input }: WithOffProps) {
  return (
    <span className="flex items-center gap-3">
      {input}
      <label className="flex shrink-0 items-center gap-1.5 max-tablet:min-h-11">
        <input
          type="checkbox"
          aria-label={`off: ${label.toLowerCase()}`}
          checked={off}
          onChange={(event) => {
            onChange(event.target.checked ? NONE : "");
          }}
        />
        off
      </label>
    </span>
  );
}

const SWITCH: [string, string][] = [
  ["true", "yes"],
  ["false", "no"],
];

function select(
  control: FieldControl,
  value: string,
  nothing: string,
  options: readonly [string, string][],
  onChange: (value: string) => void,
) {
  return (
    <Select
      {...control}
      value={value}
      onChange={(event) => {
        onChange(event.target.value);
      }}
    >
      <option value="">{nothing}</option>
      {options.map(([key, text]) => (
        <option key={key} value={key}>
          {text}
        </option>
      ))}
    </Select>
  );
}

/** The schema speaks of specs, where empty is null; here an empty field is its default. */
const WHEN_EMPTY = /when (left )?empty/;

function helpOf({ help, standard, kind, path, canBeOff }: SpecField): string {
  const sentence = canBeOff ? help.replace(WHEN_EMPTY, "when off") : help;
  const plain = path === "data.dataset" ? "Which data the model learns from." : sentence.replaceAll("`", "");
  return standard === "" || kind === "switch" || kind === "choice" ? plain : `${plain} Default ${standard}.`;
}
