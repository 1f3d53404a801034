/** Converts a curation to form values and back, and describes it. */
import type { CurationSpec } from "@/api/types";
import { fieldLabel, inSentence } from "@/lib/fieldLabel";

export type RuleName = keyof CurationSpec["rules"];

interface FilterRule {
  name: RuleName;
  label: string;
  help: string;
  /** Entered in percent; the API expects a fraction. */
  isPercent: boolean;
}

export const FILTER_RULES: readonly FilterRule[] = [
  { name: "min_characters", label: "Minimum length, characters", help: "Shorter documents are dropped.", isPercent: false },
  { name: "max_characters", label: "Maximum length, characters", help: "Longer documents are dropped.", isPercent: false },
  {
    name: "min_letter_fraction",
    label: "Minimum share of letters, %",
    help: "Of all non-whitespace characters. Tables of numbers have few letters.",
    isPercent: true,
  },
  {
    name: "max_repeated_line_fraction",
    label: "Maximum share of repeated lines, %",
    help: "Lines that already appeared in the document. Gopher uses 30.",
    isPercent: true,
  },
  {
    name: "min_mean_word_characters",
    label: "Minimum mean word length, characters",
    help: "Gopher uses 3.",
    isPercent: false,
  },
  {
    name: "max_mean_word_characters",
    label: "Maximum mean word length, characters",
    help: "Gopher uses 10.",
    isPercent: false,
  },
];

const DEFAULT_REJECTED_PERCENT = 1;

export interface CurationDraft {
  textDocuments: CurationSpec["read"]["text_documents"];
  /** Empty: the platform chooses. */
  field: string;
  dropDuplicates: boolean;
  /** The limit in percent, as text. */
  rejectedLimit: string;
  rules: Partial<Record<RuleName, string>>;
}

export const DEFAULT_CURATION: CurationSpec = {
  read: { text_documents: "file", field: null },
  rejected_limit: 0.01,
  drop_duplicates: false,
  rules: {},
  mix: [],
};

export function draftOf(curation: CurationSpec): CurationDraft {
  const filled = FILTER_RULES.flatMap(({ name, isPercent }): [RuleName, string][] => {
    const value = curation.rules[name];
    return value === null || value === undefined ? [] : [[name, isPercent ? percentText(value) : String(value)]];
  });
  return {
    textDocuments: curation.read.text_documents,
    field: curation.read.field ?? "",
    dropDuplicates: curation.drop_duplicates,
    rejectedLimit: percentText(curation.rejected_limit),
    rules: Object.fromEntries(filled),
  };
}

/** The curation of a valid draft; an empty field means no filter. */
export function curationOf(draft: CurationDraft, mix: CurationSpec["mix"] = []): CurationSpec {
  const rules = FILTER_RULES.flatMap(({ name, isPercent }): [RuleName, number][] => {
    const value = numberOf(draft.rules[name]);
    return value === null ? [] : [[name, isPercent ? fractionOf(value) : value]];
  });
  return {
    read: readOf(draft),
    rejected_limit: fractionOf(numberOf(draft.rejectedLimit) ?? DEFAULT_REJECTED_PERCENT),
    drop_duplicates: draft.dropDuplicates,
    rules: Object.fromEntries(rules),
    mix,
  };
}

export function readOf({ textDocuments, field }: CurationDraft): CurationSpec["read"] {
  return { text_documents: textDocuments, field: field === "" ? null : field };
}

/** The invalid fields of a draft. Checks only that they are numbers; the API validates the ranges. */
export function mistakesOf(draft: CurationDraft): Partial<Record<RuleName | "rejected_limit", string>> {
  const inputs: [RuleName | "rejected_limit", string | undefined][] = [
    ["rejected_limit", draft.rejectedLimit],
    ...FILTER_RULES.map(({ name }): [RuleName, string | undefined] => [name, draft.rules[name]]),
  ];
  const invalid = inputs.filter(([, text]) => Number.isNaN(numberOf(text)));
  return Object.fromEntries(invalid.map(([name, text]) => [name, `${text?.trim() ?? ""} is not a number. Enter a number or leave the field empty.`]));
}

/** Describes what a curation does. */
export function describeCuration(curation: CurationSpec): string[] {
  return [
    ...(curation.read.field === null || curation.read.field === undefined ? [] : [`documents from the field “${curation.read.field}”`]),
    ...(curation.read.text_documents === "blank_line" ? ["text split at blank lines"] : []),
    ...describeFilters(curation),
    ...(curation.mix.length > 0 ? [`mixed from ${curation.mix.length} datasets`] : []),
  ];
}

/** Describes the filters that drop documents. */
export function describeFilters(curation: CurationSpec): string[] {
  const rules = FILTER_RULES.flatMap(({ name, label: words, isPercent }) => {
    const value = curation.rules[name];
    if (value === null || value === undefined) return [];
    return [`${words.replace(/,.*/, "").toLowerCase()} ${isPercent ? `${percentText(value)} %` : value.toLocaleString("en-US")}`];
  });
  return [...(curation.drop_duplicates ? ["without duplicates"] : []), ...rules];
}

const CHANGED_LABELS: Record<string, string> = {
  "read.field": "Field with the text",
  "read.text_documents": "Documents of text files",
  rejected_limit: "Maximum unreadable documents",
  drop_duplicates: "Drop duplicates",
  ...Object.fromEntries(FILTER_RULES.map(({ name, label }) => [`rules.${name}`, label.replace(/,.*/, "")])),
};
const PERCENT_FIELDS = new Set(["rejected_limit", ...FILTER_RULES.filter(({ isPercent }) => isPercent).map(({ name }) => `rules.${name}`)]);
const VALUE_WORDS: Record<string, string> = { true: "yes", false: "no", empty: "none", file: "one per file", blank_line: "split at blank lines" };
const CHANGE = /^curation\.([\w.]+): (.*) → (.*)$/;

/** What changed in a version, with the form's labels: `curation.rejected_limit: 0.01 → 0.05` is "Maximum unreadable documents: 1 % → 5 %". */
export function changeText(change: string): string {
  const [, field = "", before = "", after = ""] = CHANGE.exec(change) ?? [];
  const label = CHANGED_LABELS[field];
  if (label === undefined) return change;
  const shown = (value: string) => (PERCENT_FIELDS.has(field) && value !== "empty" ? `${percentText(Number(value))} %` : (VALUE_WORDS[value] ?? value));
  return `${label}: ${shown(before)} → ${shown(after)}`;
}

const DROP_REASONS: Record<string, string> = {
  duplicate: "duplicate",
  duplicates: "duplicate",
  drop_duplicates: "duplicate",
  min_characters: "too short",
  max_characters: "too long",
  min_letter_fraction: "too few letters",
  max_repeated_line_fraction: "too many repeated lines",
  min_mean_word_characters: "words too short",
  max_mean_word_characters: "words too long",
  mix: "not sampled for the mixture",
  mixture: "not sampled for the mixture",
};

/** Why a document was dropped. */
export function dropReason(name: string): string {
  const key = name.split(".").at(-1) ?? name;
  return DROP_REASONS[key] ?? inSentence(fieldLabel(key));
}

const GROUPED = /^\d{1,3}(,\d{3})+$/;

/** Null if empty, NaN if not a number. */
function numberOf(text: string | undefined): number | null {
  const given = text?.trim() ?? "";
  // 0,5 is not 5: commas are read in groups of thousands only.
  const plain = GROUPED.test(given) ? given.replaceAll(",", "") : given;
  return plain === "" ? null : Number(plain);
}

/** 30 → 0.3, without floating-point noise. */
function fractionOf(percent: number): number {
  return Number((percent / 100).toPrecision(12));
}

function percentText(fraction: number): string {
  return String(Number((fraction * 100).toPrecision(12)));
}
