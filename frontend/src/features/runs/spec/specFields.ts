/**
 * A form generated from the JSON Schema of RunSpec. Every field is identified by its dotted path and holds text.
 * The spec is built from the filled fields; an empty field means its default. If null is not the default but
 * another choice (no clipping), the field holds `NONE`.
 */

import { fieldLabel } from "@/lib/fieldLabel";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface JsonSchema {
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  type?: string;
  description?: string;
  default?: Json;
  const?: Json;
  enum?: Json[];
  anyOf?: JsonSchema[];
  items?: JsonSchema;
  allOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
}

/** `lines` is a list of texts, one per line; `linesOf` and `listOf` convert it. */
export type FieldKind = "integer" | "number" | "text" | "choice" | "switch" | "lines";

export interface SpecField {
  path: string;
  label: string;
  help: string;
  kind: FieldKind;
  choices: string[];
  /** The values that the choices stand for, in the same order: a choice of numbers is sent as a number. */
  choiceValues: Json[];
  /** Whether a comma-separated list of numbers is a valid value. */
  acceptsNumberList: boolean;
  /** As text; empty if the platform decides or a value is required. */
  defaultText: string;
  required: boolean;
  /** Whether it may be null although its default is not: a separate choice, distinct from an empty field. */
  isNullable: boolean;
  /** The optional group that the field belongs to. */
  group?: SpecGroup;
}

/** A nested section that may be absent: `precision.fp8` exists if `precision.kind` is `fp8`, `model.rope_scaling` if one of its fields is set. */
export interface SpecGroup {
  key: string;
  label: string;
  help: string;
  /** The field that switches the group on; null if setting any of its fields does. */
  kind: SpecField | null;
}

export interface SpecSection {
  key: string;
  label: string;
  help: string;
  fields: SpecField[];
}

/** Text of each filled field, by path. */
export type SpecValues = Record<string, string>;

/** The text of a field that is explicitly null. */
export const NONE = "null";

/** The sections of the form. Top-level fields come first, in a section with an empty key. */
export function sectionsOf(root: JsonSchema): SpecSection[] {
  const general: SpecField[] = [];
  const sections: SpecSection[] = [];
  for (const [key, raw] of Object.entries(root.properties ?? {})) {
    const schema = resolve(raw, root);
    if (schema.properties === undefined) {
      const field = fieldOf(key, schema, isRequired(root, key));
      if (field !== null) general.push(field);
    } else {
      const fields = fieldsOf(key, schema, root);
      sections.push({ key, label: fieldLabel(key), help: schema.description ?? "", fields });
    }
  }
  return [{ key: "", label: "Run", help: "", fields: general }, ...sections];
}

function fieldsOf(prefix: string, schema: JsonSchema, root: JsonSchema): SpecField[] {
  const plain: SpecField[] = [];
  const grouped: SpecField[] = [];
  for (const [key, raw] of Object.entries(schema.properties ?? {})) {
    const inner = resolve(raw, root);
    const path = `${prefix}.${key}`;
    const optional = optionalSection(inner, root);
    if (inner.properties !== undefined) {
      plain.push(...fieldsOf(path, withDefaults(inner, raw.default), root));
    } else if (optional !== null) {
      grouped.push(...groupOf(path, optional, root, plain));
    } else {
      const field = fieldOf(path, inner, isRequired(schema, key));
      if (field !== null) plain.push(field);
    }
  }
  return [...plain, ...grouped];
}

/** The section, if the schema is a section or null. */
function optionalSection(schema: JsonSchema, root: JsonSchema): JsonSchema | null {
  const sections = (schema.anyOf ?? []).map((schema) => resolve(schema, root)).filter(({ properties }) => properties !== undefined);
  return sections.length === 1 ? (sections[0] ?? null) : null;
}

/** An optional section belongs to the kind with the same name; the field `kind` comes before it. */
function groupOf(path: string, section: JsonSchema, root: JsonSchema, before: readonly SpecField[]): SpecField[] {
  const parts = path.split(".");
  const key = parts.pop() ?? "";
  const kind = before.find((field) => field.path === [...parts, "kind"].join("."));
  const fields = fieldsOf(path, section, root).map((field) => ({ ...field, label: fieldLabel(field.path.split(".").pop() ?? "") }));
  const help = section.description ?? "";
  const group: SpecGroup =
    kind?.choices.includes(key) === true
      ? { key, label: fieldLabel(key), help, kind }
      : { key, label: fieldLabel(key), help: `${help} Off unless you set one of these.`.trim(), kind: null };
  return fields.map((field) => ({ ...field, group }));
}

/** Whether the field is in use: the fields of a group with a kind are while that is selected. */
export function isActive({ group }: SpecField, values: SpecValues): boolean {
  if (group === undefined || group.kind === null) return true;
  return (values[group.kind.path]?.trim() || group.kind.defaultText) === group.key;
}

/** A section's own default may override its fields' defaults. */
function withDefaults(schema: JsonSchema, defaults: Json | undefined): JsonSchema {
  if (!isObject(defaults)) return schema;
  const properties = Object.entries(schema.properties ?? {}).map(([key, inner]): [string, JsonSchema] => [
    key,
    defaults[key] === undefined ? inner : { ...inner, default: defaults[key] },
  ]);
  return { ...schema, properties: Object.fromEntries(properties) };
}

/** A field with only one possible value is left out. */
function fieldOf(path: string, schema: JsonSchema, required: boolean): SpecField | null {
  if (schema.const !== undefined) return null;
  const typed = schema.anyOf?.find(({ type }) => type !== "null") ?? schema;
  const choiceValues = typed.enum ?? [];
  const choices = choiceValues.map(textOf);
  if (choices.length === 1) return null;
  const parts = path.split(".");
  const kind = kindOf(typed, choices);
  const hasNoDefault = schema.default === undefined || schema.default === null || kind === "lines";
  const defaultText = hasNoDefault ? "" : textOf(schema.default ?? null);
  return {
    path,
    label: fieldLabel(parts.slice(parts.length > 2 ? -2 : -1).join(" "), path),
    help: schema.description ?? "",
    kind,
    choices,
    choiceValues,
    acceptsNumberList: schema.anyOf?.some(({ items }) => items?.type === "integer") === true,
    defaultText,
    required,
    isNullable: defaultText !== "" && schema.anyOf?.some(({ type }) => type === "null") === true,
  };
}

function kindOf(schema: JsonSchema, choices: string[]): FieldKind {
  if (choices.length > 0) return "choice";
  if (schema.type === "array" && schema.items?.type === "string") return "lines";
  if (schema.type === "integer" || schema.type === "number") return schema.type;
  return schema.type === "boolean" ? "switch" : "text";
}

/** Follows references; properties next to a reference override the referenced ones. */
function resolve(schema: JsonSchema, root: JsonSchema): JsonSchema {
  const name = schema.$ref ?? schema.allOf?.[0]?.$ref;
  const named = name === undefined ? undefined : root.$defs?.[name.replace("#/$defs/", "")];
  return named === undefined ? schema : { ...resolve(named, root), ...schema };
}

function isRequired(schema: JsonSchema, key: string): boolean {
  return schema.required?.includes(key) ?? false;
}

/**
 * The spec of the filled fields. Inactive groups are left out. Text that is not a number stays text, so that the
 * API's error names it.
 */
export function specOf(values: SpecValues, fields: readonly SpecField[]): Record<string, Json> {
  const spec: Record<string, Json> = {};
  for (const field of fields) {
    const text = values[field.path]?.trim() ?? "";
    if (text === "" || !isActive(field, values)) continue;
    setPath(spec, field.path.split("."), field.kind === "lines" ? listOf(values[field.path] ?? "") : valueOf(text, field));
  }
  return spec;
}

const GROUPED = /^-?\d{1,3}(,\d{3})+$/;
const DECIMAL = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const NUMBER_LIST = /^\d+(\s*,\s*\d+)*$/;

function valueOf(text: string, { kind, defaultText, choiceValues, acceptsNumberList }: SpecField): Json {
  if (text === NONE && defaultText !== "") return null;
  if (kind === "switch") return text === "true";
  if (kind === "choice") return choiceValues.find((item) => textOf(item) === text) ?? text;
  if (kind === "text") return acceptsNumberList && NUMBER_LIST.test(text) ? text.split(",").map(Number) : text;
  // Groups of thousands only where no decimals are possible: 0,5 is not 5.
  const plain = kind === "integer" && GROUPED.test(text) ? text.replaceAll(",", "") : text;
  return DECIMAL.test(plain) ? Number(plain) : text;
}

/** Converts a field with one text per line. Blank lines are ignored; `\\n` represents a line break within a text. */
export function listOf(text: string): string[] {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return lines.map((line) => line.replace(/\\(n|\\)/g, (_, escaped) => (escaped === "n" ? "\n" : "\\")));
}

/** The reverse of `listOf`. */
export function linesOf(texts: readonly string[]): string {
  return texts.map((text) => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")).join("\n");
}

function setPath(target: Record<string, Json>, path: string[], value: Json): void {
  const [key = "", ...rest] = path;
  if (rest.length === 0) {
    target[key] = value;
    return;
  }
  const inner = target[key];
  const object = isObject(inner) ? inner : {};
  target[key] = object;
  setPath(object, rest, value);
}

/**
 * The fields that a spec fills, null only where it is not the default, and the paths that the form has no field
 * for.
 */
export function valuesOf(spec: Record<string, Json>, fields: readonly SpecField[]): { values: SpecValues; unknownPaths: string[] } {
  const known = new Map(fields.map((field) => [field.path, field]));
  const values: SpecValues = {};
  const unknownPaths: string[] = [];
  for (const [path, value] of leaves(spec, "")) {
    const field = known.get(path);
    if (field !== undefined) values[path] = value === null && field.defaultText === "" ? "" : textOf(value);
    else if (!FIXED.test(path) && !(value === null && isSectionPath(path, fields))) unknownPaths.push(path);
  }
  return { values, unknownPaths };
}

/** A section that is null has no values. */
function isSectionPath(path: string, fields: readonly SpecField[]): boolean {
  return fields.some((field) => field.path.startsWith(`${path}.`));
}

/** Fields with only one possible value, which the form leaves out. */
const FIXED = /^schema_version$/;

/** Every value that is not a section, by dotted path. */
export function leaves(value: Json, path: string): [string, Json][] {
  if (!isObject(value)) return [[path, value]];
  return Object.entries(value).flatMap(([key, inner]) => leaves(inner, path === "" ? key : `${path}.${key}`));
}

function isObject(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value as the text of its field. */
export function textOf(value: Json): string {
  if (Array.isArray(value) && value.length > 0 && value.every((item) => typeof item === "number")) return value.join(",");
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return linesOf(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
