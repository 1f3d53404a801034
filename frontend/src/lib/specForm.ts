/**
 * A form made from the JSON Schema of a RunSpec. Every field is known by its dotted path and holds text; the spec is
 * made from the fields that are filled in, so that an empty field means its default and nothing is said twice. Where null
 * is not the default but another choice (no clipping), the field holds `NONE`.
 */

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

export type FieldKind = "integer" | "number" | "text" | "choice" | "switch";

export interface SpecField {
  path: string;
  label: string;
  help: string;
  kind: FieldKind;
  choices: string[];
  /** What the choices stand for in the spec, in their order: a choice of numbers is sent as a number. */
  meanings: Json[];
  /** Whether numbers with commas between them are a value of it. */
  takesNumbers: boolean;
  /** As text; empty where the platform decides or a value is required. */
  standard: string;
  required: boolean;
  /** Whether it may be null though its default is not: a choice of its own, told from an empty field. */
  canBeOff: boolean;
  /** For a field of a group that not every spec has. */
  group?: SpecGroup;
}

/** A section within a section that is there for one kind only: `precision.fp8` where `precision.kind` is `fp8`. */
export interface SpecGroup {
  key: string;
  label: string;
  help: string;
  kind: SpecField;
}

export interface SpecSection {
  key: string;
  label: string;
  help: string;
  fields: SpecField[];
}

/** Text of each filled field, by path. */
export type SpecValues = Record<string, string>;

/** The text of a field that is null on purpose. */
export const NONE = "null";

/** The sections of the form; the fields that stand at the top of the spec come first, as the section with no key. */
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
      sections.push({ key, label: label(key), help: schema.description ?? "", fields });
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

/** What a section is that may also be null. */
function optionalSection(schema: JsonSchema, root: JsonSchema): JsonSchema | null {
  const sections = (schema.anyOf ?? []).map((one) => resolve(one, root)).filter(({ properties }) => properties !== undefined);
  return sections.length === 1 ? (sections[0] ?? null) : null;
}

/** An optional section belongs to the kind whose name it bears; the field `kind` stands before it. */
function groupOf(path: string, section: JsonSchema, root: JsonSchema, before: readonly SpecField[]): SpecField[] {
  const parts = path.split(".");
  const key = parts.pop() ?? "";
  const kind = before.find((field) => field.path === [...parts, "kind"].join("."));
  const fields = fieldsOf(path, section, root).map((field) => ({ ...field, label: label(field.path.split(".").pop() ?? "") }));
  if (kind?.choices.includes(key) !== true) return fields;
  const group = { key, label: label(key), help: section.description ?? "", kind };
  return fields.map((field) => ({ ...field, group }));
}

/** Whether the field means something beside the others: those of a group only while its kind is chosen. */
export function applies({ group }: SpecField, values: SpecValues): boolean {
  return group === undefined || (values[group.kind.path]?.trim() || group.kind.standard) === group.key;
}

/** A section's own default may say more than its fields' defaults. */
function withDefaults(schema: JsonSchema, defaults: Json | undefined): JsonSchema {
  if (!isObject(defaults)) return schema;
  const properties = Object.entries(schema.properties ?? {}).map(([key, inner]): [string, JsonSchema] => [
    key,
    defaults[key] === undefined ? inner : { ...inner, default: defaults[key] },
  ]);
  return { ...schema, properties: Object.fromEntries(properties) };
}

/** A field with one possible value asks nothing and is left out. */
function fieldOf(path: string, schema: JsonSchema, required: boolean): SpecField | null {
  if (schema.const !== undefined) return null;
  const typed = schema.anyOf?.find(({ type }) => type !== "null") ?? schema;
  const meanings = typed.enum ?? [];
  const choices = meanings.map(textOf);
  if (choices.length === 1) return null;
  const parts = path.split(".");
  const standard = schema.default === undefined || schema.default === null ? "" : textOf(schema.default);
  return {
    path,
    label: label(parts.slice(parts.length > 2 ? -2 : -1).join(" ")),
    help: schema.description ?? "",
    kind: kindOf(typed, choices),
    choices,
    meanings,
    takesNumbers: schema.anyOf?.some(({ items }) => items?.type === "integer") === true,
    standard,
    required,
    canBeOff: standard !== "" && schema.anyOf?.some(({ type }) => type === "null") === true,
  };
}

function kindOf(schema: JsonSchema, choices: string[]): FieldKind {
  if (choices.length > 0) return "choice";
  if (schema.type === "integer" || schema.type === "number") return schema.type;
  return schema.type === "boolean" ? "switch" : "text";
}

/** Follows references; what stands beside a reference wins over what it names. */
function resolve(schema: JsonSchema, root: JsonSchema): JsonSchema {
  const name = schema.$ref ?? schema.allOf?.[0]?.$ref;
  const named = name === undefined ? undefined : root.$defs?.[name.replace("#/$defs/", "")];
  return named === undefined ? schema : { ...resolve(named, root), ...schema };
}

function isRequired(schema: JsonSchema, key: string): boolean {
  return schema.required?.includes(key) ?? false;
}

const WORDS: Record<string, string> = { fp8: "FP8", kv: "KV", rope: "RoPE", bpe: "BPE", std: "deviation", epsilon: "epsilon" };

/** `learning_rate` → `Learning rate` */
export function label(key: string): string {
  const words = key.split(/[_ ]/).map((word) => WORDS[word] ?? word);
  const text = words.join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The spec that the filled fields say; a group that does not apply is left out, whatever its fields hold. Text that is no number stays text, so that the API names it in its refusal. */
export function specOf(values: SpecValues, fields: readonly SpecField[]): Record<string, Json> {
  const spec: Record<string, Json> = {};
  for (const field of fields) {
    const text = values[field.path]?.trim() ?? "";
    if (text === "" || !applies(field, values)) continue;
    place(spec, field.path.split("."), valueOf(text, field));
  }
  return spec;
}

const NUMBERS = /^\d+(\s*,\s*\d+)*$/;

function valueOf(text: string, { kind, standard, meanings, takesNumbers }: SpecField): Json {
  if (text === NONE && standard !== "") return null;
  if (kind === "switch") return text === "true";
  if (kind === "choice") return meanings.find((one) => textOf(one) === text) ?? text;
  if (kind === "text") return takesNumbers && NUMBERS.test(text) ? text.split(",").map(Number) : text;
  const plain = text.replaceAll(",", "");
  return Number.isFinite(Number(plain)) ? Number(plain) : text;
}

function place(target: Record<string, Json>, path: string[], value: Json): void {
  const [key = "", ...rest] = path;
  if (rest.length === 0) {
    target[key] = value;
    return;
  }
  const inner = target[key];
  const object = isObject(inner) ? inner : {};
  target[key] = object;
  place(object, rest, value);
}

/** The fields that a spec fills, null only where it is not the default; and the paths of it for which the form has no field. */
export function valuesOf(spec: Record<string, Json>, fields: readonly SpecField[]): { values: SpecValues; strangers: string[] } {
  const known = new Map(fields.map((field) => [field.path, field]));
  const values: SpecValues = {};
  const strangers: string[] = [];
  for (const [path, value] of leaves(spec, "")) {
    const field = known.get(path);
    if (field !== undefined) values[path] = value === null && field.standard === "" ? "" : textOf(value);
    else if (!FIXED.test(path) && !(value === null && isSectionPath(path, fields))) strangers.push(path);
  }
  return { values, strangers };
}

/** A section that is null says nothing. */
function isSectionPath(path: string, fields: readonly SpecField[]): boolean {
  return fields.some((field) => field.path.startsWith(`${path}.`));
}

/** Fields with one possible value: the form does not ask for them. */
const FIXED = /^(schema_version|optimizer\.kind)$/;

/** Every value that is no section, by its dotted path. */
export function leaves(value: Json, path: string): [string, Json][] {
  if (!isObject(value)) return [[path, value]];
  return Object.entries(value).flatMap(([key, inner]) => leaves(inner, path === "" ? key : `${path}.${key}`));
}

function isObject(value: Json | undefined): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function textOf(value: Json): string {
  if (Array.isArray(value) && value.every((one) => typeof one === "number")) return value.join(",");
  return typeof value === "string" ? value : JSON.stringify(value);
}
