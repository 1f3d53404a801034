/** A recipe as the form holds it, and back; and what its parts are called. */
import type { Recipe } from "@/api/types";
import { label } from "@/lib/specForm";

export type RuleName = keyof Recipe["rules"];

interface Rule {
  name: RuleName;
  label: string;
  help: string;
  /** Written in percent; the API's number is a fraction. */
  percent: boolean;
}

export const RULES: readonly Rule[] = [
  { name: "min_characters", label: "Shortest, characters", help: "Shorter documents are left out.", percent: false },
  { name: "max_characters", label: "Longest, characters", help: "Longer documents are left out.", percent: false },
  {
    name: "min_letter_fraction",
    label: "Least share of letters, %",
    help: "Of all characters but white space. Tables of numbers have few letters.",
    percent: true,
  },
  {
    name: "max_repeated_line_fraction",
    label: "Most repeated lines, %",
    help: "Lines that stood in the document before. Gopher takes 30.",
    percent: true,
  },
  {
    name: "min_mean_word_characters",
    label: "Shortest mean word, characters",
    help: "Gopher takes 3.",
    percent: false,
  },
  {
    name: "max_mean_word_characters",
    label: "Longest mean word, characters",
    help: "Gopher takes 10.",
    percent: false,
  },
];

const STANDARD_REJECTED_PERCENT = 1;

export interface RecipeDraft {
  textDocuments: Recipe["read"]["text_documents"];
  /** Empty: the platform chooses. */
  field: string;
  dropDuplicates: boolean;
  /** In percent, as text. */
  rejectedLimit: string;
  rules: Partial<Record<RuleName, string>>;
}

export const STANDARD_RECIPE: Recipe = {
  read: { text_documents: "file", field: null },
  rejected_limit: 0.01,
  drop_duplicates: false,
  rules: {},
  mix: [],
};

export function draftOf(recipe: Recipe): RecipeDraft {
  const filled = RULES.flatMap(({ name, percent }): [RuleName, string][] => {
    const value = recipe.rules[name];
    return value === null || value === undefined ? [] : [[name, percent ? percentText(value) : String(value)]];
  });
  return {
    textDocuments: recipe.read.text_documents,
    field: recipe.read.field ?? "",
    dropDuplicates: recipe.drop_duplicates,
    rejectedLimit: percentText(recipe.rejected_limit),
    rules: Object.fromEntries(filled),
  };
}

/** The recipe of a draft without mistakes; an empty field keeps all. */
export function recipeOf(draft: RecipeDraft, mix: Recipe["mix"] = []): Recipe {
  const rules = RULES.flatMap(({ name, percent }): [RuleName, number][] => {
    const value = numberOf(draft.rules[name]);
    return value === null ? [] : [[name, percent ? fractionOf(value) : value]];
  });
  return {
    read: readOf(draft),
    rejected_limit: fractionOf(numberOf(draft.rejectedLimit) ?? STANDARD_REJECTED_PERCENT),
    drop_duplicates: draft.dropDuplicates,
    rules: Object.fromEntries(rules),
    mix,
  };
}

export function readOf({ textDocuments, field }: RecipeDraft): Recipe["read"] {
  return { text_documents: textDocuments, field: field === "" ? null : field };
}

/** What is wrong in a draft, by field: only what is no number. What a number may be is the API's to say. */
export function mistakesOf(draft: RecipeDraft): Partial<Record<RuleName | "rejected_limit", string>> {
  const texts: [RuleName | "rejected_limit", string | undefined][] = [
    ["rejected_limit", draft.rejectedLimit],
    ...RULES.map(({ name }): [RuleName, string | undefined] => [name, draft.rules[name]]),
  ];
  const wrong = texts.filter(([, text]) => Number.isNaN(numberOf(text)));
  return Object.fromEntries(wrong.map(([name, text]) => [name, `${text?.trim() ?? ""} is not a number. Write one, or leave it empty.`]));
}

/** What a recipe does, in words. */
export function partsOf(recipe: Recipe): string[] {
  return [
    ...(recipe.read.field === null || recipe.read.field === undefined ? [] : [`field ${recipe.read.field}`]),
    ...(recipe.read.text_documents === "blank_line" ? ["text split at blank lines"] : []),
    ...keptPartsOf(recipe),
    ...(recipe.mix.length > 0 ? [`mixed from ${recipe.mix.length} datasets`] : []),
  ];
}

/** What leaves documents out. */
export function keptPartsOf(recipe: Recipe): string[] {
  const rules = RULES.flatMap(({ name, label: words, percent }) => {
    const value = recipe.rules[name];
    if (value === null || value === undefined) return [];
    return [`${words.replace(/,.*/, "").toLowerCase()} ${percent ? `${percentText(value)} %` : value.toLocaleString("en-US")}`];
  });
  return [...(recipe.drop_duplicates ? ["without duplicates"] : []), ...rules];
}

const PART_WORDS: Record<string, string> = {
  duplicate: "duplicate",
  duplicates: "duplicate",
  drop_duplicates: "duplicate",
  min_characters: "too short",
  max_characters: "too long",
  min_letter_fraction: "too few letters",
  max_repeated_line_fraction: "too many repeated lines",
  min_mean_word_characters: "words too short",
  max_mean_word_characters: "words too long",
  mix: "not drawn into the mixture",
  mixture: "not drawn into the mixture",
};

/** Why a part of a recipe left a document out. */
export function partWords(name: string): string {
  const key = name.split(".").at(-1) ?? name;
  return PART_WORDS[key] ?? label(key).toLowerCase();
}

/** Null when empty, NaN when no number. */
function numberOf(text: string | undefined): number | null {
  const plain = text?.trim().replaceAll(",", "") ?? "";
  return plain === "" ? null : Number(plain);
}

/** 30 → 0.3, without the crumbs of binary fractions. */
function fractionOf(percent: number): number {
  return Number((percent / 100).toPrecision(12));
}

function percentText(fraction: number): string {
  return String(Number((fraction * 100).toPrecision(12)));
}
