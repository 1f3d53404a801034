import type { ReactNode } from "react";
import type { Dataset, Tokenizer } from "@/api/types";
import { Field, type FieldControl } from "@/components/Field";
import { Select } from "@/components/Select";
import { TextArea } from "@/components/TextArea";
import { TextInput } from "@/components/TextInput";
import { choiceId } from "@/features/runs/form/choiceId";
import { isReadable } from "@/features/runs/form/readableDatasets";
import { helpOf, TOKENIZER_SOURCE } from "@/features/runs/form/fieldHelp";
import { fieldId } from "@/features/runs/form/fieldId";
import { inSentence } from "@/lib/fieldLabel";
import { uniqueNames } from "@/lib/uniqueNames";
import { NONE, type SpecField } from "@/features/runs/spec/specFields";

interface Props {
  field: SpecField;
  /** Replaces the schema's help. */
  help?: string | undefined;
  value: string;
  problem: string | undefined;
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  /** Where the tokenizer comes from. */
  tokenizerKind: string;
  /** Whether the value is only shown. */
  isFixed?: boolean;
  onChange: (value: string) => void;
}

/** One field of the spec: its control, help and default. */
export function SpecFieldInput(props: Props) {
  const { field, help = helpOf(field, props.tokenizerKind), problem, tokenizerKind } = props;
  return (
    <Field
      id={fieldId(field.path)}
      label={labelOf(field, tokenizerKind)}
      help={help === "" ? undefined : help}
      error={problem}
    >
      {(control) => (props.isFixed === true ? <fieldset disabled className="contents">{renderInput(props, control)}</fieldset> : renderInput(props, control))}
    </Field>
  );
}

function renderInput({ field, value, datasets, tokenizers, tokenizerKind, onChange }: Props, control: FieldControl) {
  if (field.path === "data.dataset" || (field.path === TOKENIZER_SOURCE && tokenizerKind === "dataset")) {
    const id = choiceId(datasets, value);
    const options = [...uniqueNames(datasets.filter((dataset) => dataset.id === id || isReadable(dataset)))];
    return renderSelect(control, id, datasets.length === 0 ? "no datasets yet: upload one first" : "choose a dataset", options, onChange);
  }
  if (field.path === TOKENIZER_SOURCE) {
    const options = [...uniqueNames(tokenizers)];
    return renderSelect(control, choiceId(tokenizers, value), tokenizers.length === 0 ? "no tokenizers yet: upload one first" : "choose a tokenizer", options, onChange);
  }
  if (field.kind === "switch") {
    return renderSelect(control, value, `default: ${field.defaultText === "true" ? "yes" : "no"}`, BOOLEAN_OPTIONS, onChange);
  }
  if (field.kind === "choice") {
    const options = field.choices.map((choice): [string, string] => [choice, choice]);
    return renderSelect(control, value, `default: ${field.defaultText}`, options, onChange);
  }
  if (field.kind === "lines") {
    return (
      <TextArea
        {...control}
        rows={Math.min(8, Math.max(3, value.split("\n").length + 1))}
        placeholder="One per line"
        value={value}
        onChange={(event) => {
          onChange(event.target.value);
        }}
      />
    );
  }
  const isOff = field.isNullable && value === NONE;
  const input = (
    <TextInput
      {...control}
      inputMode={field.kind === "integer" ? "numeric" : field.kind === "number" ? "decimal" : "text"}
      autoComplete="off"
      spellCheck={false}
      required={field.required}
      placeholder={isOff ? "off" : field.defaultText === "" ? undefined : `default: ${field.defaultText}`}
      value={isOff ? "" : value}
      onChange={(event) => {
        onChange(event.target.value);
      }}
    />
  );
  return field.isNullable ? <OptionalInput label={field.label} isOff={isOff} onChange={onChange} input={input} /> : input;
}

interface OptionalInputProps {
  label: string;
  isOff: boolean;
  onChange: (value: string) => void;
  input: ReactNode;
}

/** A control whose empty value means the default, with a checkbox for "off". Typing unchecks it. */
function OptionalInput({ label, isOff, onChange, input }: OptionalInputProps) {
  return (
    <span className="flex items-center gap-3">
      {input}
      <label className="flex shrink-0 items-center gap-1.5 max-tablet:min-h-11">
        <input
          type="checkbox"
          aria-label={`Turn off ${inSentence(label)}`}
          checked={isOff}
          onChange={(event) => {
            onChange(event.target.checked ? NONE : "");
          }}
        />
        off
      </label>
    </span>
  );
}

const BOOLEAN_OPTIONS: [string, string][] = [
  ["true", "yes"],
  ["false", "no"],
];

function renderSelect(
  control: FieldControl,
  value: string,
  emptyLabel: string,
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
      <option value="">{emptyLabel}</option>
      {options.map(([key, text]) => (
        <option key={key} value={key}>
          {text}
        </option>
      ))}
    </Select>
  );
}

function labelOf({ path, label }: SpecField, tokenizerKind: string): string {
  if (path === "data.dataset") return "Dataset";
  if (path === TOKENIZER_SOURCE) return tokenizerKind === "dataset" ? "Tokenizer dataset" : "Uploaded tokenizer";
  return label;
}
