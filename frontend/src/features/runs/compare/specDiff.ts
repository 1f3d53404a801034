/** Where the configurations of several runs differ. */
import type { Json } from "@/features/runs/spec/specFields";

export interface SpecDifference {
  /** Dotted path of the field. */
  path: string;
  /** Values by run; undefined if its spec has no such field. */
  values: (Json | undefined)[];
}

/** Fields that identify a run are not differences. */
const IDENTITY_FIELDS: ReadonlySet<string> = new Set(["name", "schema_version"]);

/** The fields whose values are not the same in all specs, in the order of the spec. */
export function specDifferences(specs: readonly Record<string, Json>[]): SpecDifference[] {
  const flat = specs.map((spec) => new Map(leaves(spec, "")));
  const paths = [...new Set(flat.flatMap((one) => [...one.keys()]))];
  return paths
    .filter((path) => !IDENTITY_FIELDS.has(path) && new Set(flat.map((one) => JSON.stringify(one.get(path)))).size > 1)
    .map((path) => ({ path, values: flat.map((one) => one.get(path)) }))
    // A section that only some specs have is represented by its fields.
    .filter(({ path }) => !paths.some((other) => other.startsWith(`${path}.`)));
}

function leaves(value: Json, path: string): [string, Json][] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [[path, value]];
  return Object.entries(value).flatMap(([key, inner]) => leaves(inner, path === "" ? key : `${path}.${key}`));
}
