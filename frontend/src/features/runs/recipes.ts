/** A recipe is all that a run is but its name and its dataset. */
import type { SavedRecipe } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";
import { valuesOf, type Json, type SpecField, type SpecValues } from "@/lib/specForm";

const OWN = ["name", "data.dataset", "data.version"] as const;

/** What of a spec is kept in a recipe. */
export function ofRun(spec: SpecJson): SpecJson {
  const { data, ...rest } = without(spec as Record<string, Json>, "name");
  if (typeof data !== "object" || data === null || Array.isArray(data)) return rest;
  const kept = without(data, "dataset", "version");
  return Object.keys(kept).length === 0 ? rest : { ...rest, data: kept };
}

function without(fields: Record<string, Json>, ...names: string[]): Record<string, Json> {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));
}

/** The fields with a recipe in them; the run's name and data stay. */
export function withRecipe({ spec }: SavedRecipe, fields: readonly SpecField[], values: SpecValues): SpecValues {
  const own = Object.fromEntries(OWN.flatMap((path) => (values[path] === undefined ? [] : [[path, values[path]]])));
  return { ...valuesOf(spec as Record<string, Json>, fields).values, ...own };
}

/** Whether the fields say what the recipe says, and no more. */
export function recipeOf(recipe: SavedRecipe, fields: readonly SpecField[], values: SpecValues): boolean {
  const said = filled(values);
  const meant = filled(withRecipe(recipe, fields, values));
  return said.size === meant.size && [...said].every(([path, text]) => meant.get(path) === text);
}

function filled(values: SpecValues): Map<string, string> {
  return new Map(Object.entries(values).filter(([, text]) => text !== ""));
}
