/** A recipe is a run's configuration without its name and dataset. */
import type { Recipe } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";
import { valuesOf, type Json, type SpecField, type SpecValues } from "@/features/runs/spec/specFields";

const RUN_FIELDS = ["name", "data.dataset", "data.version"] as const;

/** The part of a spec that a recipe stores. */
export function recipeSpecOf(spec: SpecJson): SpecJson {
  const { data, ...rest } = without(spec as Record<string, Json>, "name");
  if (typeof data !== "object" || data === null || Array.isArray(data)) return rest;
  const kept = without(data, "dataset", "version");
  return Object.keys(kept).length === 0 ? rest : { ...rest, data: kept };
}

function without(fields: Record<string, Json>, ...names: string[]): Record<string, Json> {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));
}

/** The form values with a recipe applied; the run's name and data stay. */
export function applyRecipe({ spec }: Recipe, fields: readonly SpecField[], values: SpecValues): SpecValues {
  const own = Object.fromEntries(RUN_FIELDS.flatMap((path) => (values[path] === undefined ? [] : [[path, values[path]]])));
  return { ...valuesOf(spec as Record<string, Json>, fields).values, ...own };
}

/** Whether the form values equal the recipe. */
export function matchesRecipe(recipe: Recipe, fields: readonly SpecField[], values: SpecValues): boolean {
  const formValues = filled(values);
  const recipeValues = filled(applyRecipe(recipe, fields, values));
  return formValues.size === recipeValues.size && [...formValues].every(([path, text]) => recipeValues.get(path) === text);
}

function filled(values: SpecValues): Map<string, string> {
  return new Map(Object.entries(values).filter(([, text]) => text !== ""));
}
