/** A run's spec in groups for its page: one per section, with chosen values and defaults separate. */
import { valuesOf, type Json, type SpecField } from "@/features/runs/spec/specFields";

export interface Entry {
  path: string;
  name: string;
  value: Json;
}

export interface Group {
  /** The section's key; empty for fields outside of sections. */
  key: string;
  entries: Entry[];
}

/** Fields that identify the run. They count as chosen even if they have their default. */
const ALWAYS_CHOSEN: ReadonlySet<string> = new Set(["name", "data.dataset"]);

export function groupsOf(spec: Record<string, Json>): Group[] {
  const general = Object.entries(spec).filter(([, value]) => !isSection(value));
  const sections = Object.entries(spec).filter(([, value]) => isSection(value));
  return [
    { key: "", entries: general.map(([key, value]) => ({ path: key, name: key, value })) },
    ...sections.map(([key, value]) => ({ key, entries: entriesOf(value, key) })),
  ];
}

/** The chosen entries, and the entries with defaults. Until the defaults are known, all entries count as chosen. */
export function splitByDefault(groups: readonly Group[], fields: readonly SpecField[] | null): [Group[], Group[]] {
  if (fields === null) return [[...groups], []];
  const known = new Map(fields.map((field) => [field.path, field]));
  const isDefault = ({ path, value }: Entry): boolean => {
    if (ALWAYS_CHOSEN.has(path)) return false;
    const field = known.get(path);
    // Fields with one possible value are not in the form.
    if (value === null || field === undefined) return field === undefined || field.defaultText === "";
    return (valuesOf(nested(path, value), [field]).values[path] ?? "") === field.defaultText;
  };
  const part = (wanted: boolean) =>
    groups
      .map(({ key, entries }) => ({ key, entries: entries.filter((entry) => isDefault(entry) === wanted) }))
      .filter(({ entries }) => entries.length > 0);
  return [part(false), part(true)];
}

function nested(path: string, value: Json): Record<string, Json> {
  const [key = "", ...rest] = path.split(".");
  return { [key]: rest.length === 0 ? value : nested(rest.join("."), value) };
}

export function isSection(value: Json): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The fields of a section; nested ones are named with their section: `tokenizer vocabulary`. */
function entriesOf(section: Json, path: string, prefix = ""): Entry[] {
  if (!isSection(section)) return [];
  return Object.entries(section).flatMap(([key, value]): Entry[] => {
    const entry = { path: `${path}.${key}`, name: `${prefix}${key}`, value };
    return isSection(value) ? entriesOf(value, entry.path, `${key} `) : [entry];
  });
}
