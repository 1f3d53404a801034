import type { ReactNode } from "react";
import type { Dataset, Tokenizer } from "@/api/types";
import { Field, type FieldControl } from "@/components/Field";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";
import { fieldId } from "@/features/runs/fieldId";
import { namesApart } from "@/lib/namesApart";
import { NONE, type SpecField } from "@/lib/specForm";

interface Props {
  field: SpecField;
  value: string;
  problem: string | undefined;
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  /** Where the tokenizer comes from. */
  tokenizerKind: string;
  onChange: (value: string) => void;
}

/** One field of the spec: its control, its sentence, its default. */
export function SpecFieldInput(props: Props) {
  const { field, problem, tokenizerKind } = props;
  return (
    <Field
      id={fieldId(field.path)}
      label={labelOf(field, tokenizerKind)}
      help={helpOf(field, tokenizerKind)}
      error={problem}
    >
      {(control) => inputOf(props, control)}
    </Field>
  );
}

function inputOf({ field, value, datasets, tokenizers, tokenizerKind, onChange }: Props, control: FieldControl) {
  if (field.path === "data.dataset" || (field.path === SOURCE && tokenizerKind === "dataset")) {
    const options = [...namesApart(datasets.filter((one) => one.id === value || isReadable(one)))];
    return select(control, value, datasets.length === 0 ? "no datasets yet: upload one first" : "choose a dataset", options, onChange);
  }
  if (field.path === SOURCE) {
    const options = [...namesApart(tokenizers)];
    return select(control, value, tokenizers.length === 0 ? "no tokenizers yet: upload one first" : "choose a tokenizer", options, onChange);
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

/** A dataset without a version that could be read is of no use to a run. */
function isReadable({ versions }: Dataset): boolean {
  return versions.length === 0 || versions.some(({ state }) => state !== "failed");
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

/** A tokenizer that is not made from the run's own data has a source, chosen by name. */
const SOURCE = "data.tokenizer.source";

function labelOf({ path, label }: SpecField, tokenizerKind: string): string {
  if (path === "data.dataset") return "Dataset";
  if (path === SOURCE) return tokenizerKind === "dataset" ? "Dataset of the tokenizer" : "Uploaded tokenizer";
  return label;
}

/** The schema speaks of specs, where empty is null; here an empty field is its default. */
const WHEN_EMPTY = /when (left )?empty/;

function helpOf({ help, standard, kind, path, canBeOff }: SpecField, tokenizerKind: string): string {
  if (path === SOURCE) return tokenizerKind === "dataset" ? "Its BPE is taken." : "One of the team's, from the datasets page.";
  const sentence = canBeOff ? help.replace(WHEN_EMPTY, "when off") : help;
  const plain = path === "data.dataset" ? "Which data the model learns from." : sentence.replaceAll("`", "");
  return standard === "" || kind === "switch" || kind === "choice" ? plain : `${plain} Default ${standard}.`;
}
