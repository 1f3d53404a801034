import type { Dataset } from "@/api/types";
import { Field, type FieldControl } from "@/components/Field";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";
import { fieldId } from "@/features/runs/fieldId";
import type { SpecField } from "@/lib/specForm";

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
  return (
    <TextInput
      {...control}
      inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : "text"}
      autoComplete="off"
      spellCheck={false}
      required={field.required}
      placeholder={field.standard}
      value={value}
      onChange={(event) => {
        onChange(event.target.value);
      }}
    />
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

function helpOf({ help, standard, kind, path }: SpecField): string {
  const plain = path === "data.dataset" ? "Which data the model learns from." : help.replaceAll("`", "");
  return standard === "" || kind === "switch" || kind === "choice" ? plain : `${plain} Default ${standard}.`;
}
