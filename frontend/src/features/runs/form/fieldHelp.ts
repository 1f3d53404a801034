/** The help of a field in the form, which names other fields by their labels. */
import type { SpecField } from "@/features/runs/spec/specFields";
import { defaultValueText } from "@/features/runs/spec/valueText";
import { fieldLabel } from "@/lib/fieldLabel";

/** A tokenizer that is not trained on the run's own data has a source, chosen by name. */
export const TOKENIZER_SOURCE = "data.tokenizer.source";

/** The schema describes specs, where empty is null; in this form an empty field means the default. */
const WHEN_EMPTY = /when (left )?empty/;

export function helpOf(field: SpecField, tokenizerKind: string): string {
  const { help, defaultText, kind, path, isNullable } = field;
  if (path === TOKENIZER_SOURCE) return tokenizerKind === "dataset" ? "Its BPE tokenizer is reused." : "One of the team's tokenizers, uploaded on the datasets page.";
  const sentence = isNullable ? help.replace(WHEN_EMPTY, "when off") : help;
  // What is not one of its own values is another field or section.
  const isField = (name: string) => !field.choices.includes(name);
  const text = sentence.replace(FIELD_NAME, (quoted, name: string) => (isField(name) ? `“${fieldLabel(name.split(".").at(-1) ?? name)}”` : quoted)).replaceAll("`", "");
  return defaultText === "" || kind === "switch" || kind === "choice" ? text : `${text} Default\u00a0${unbroken(defaultValueText(field))}.`;
}

/** `precision.fp8`, `zero_stage` */
const FIELD_NAME = /`([a-z]+(?:[._][a-z][a-z0-9]*)+)`/g;

/** 1e-8 on one line. */
function unbroken(number: string): string {
  return number.replaceAll("-", "\u2011");
}
