import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body, WHOLE_LIST } from "@/api/client";
import type { Run, RunEstimate, Recipe } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";

/** The team's saved recipes, by name. */
export function recipesQuery(team: string) {
  return queryOptions({
    queryKey: ["recipes", team],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/recipes", { params: { path: { team }, query: WHOLE_LIST }, signal })).items,
    staleTime: 30_000,
  });
}

export async function saveRecipe(team: string, name: string, spec: SpecJson): Promise<Recipe> {
  return body(await api.POST("/api/v1/teams/{team}/recipes", { params: { path: { team } }, body: { name, spec } }));
}

export async function deleteRecipe(team: string, recipe: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/recipes/{recipe}", { params: { path: { team, recipe } } });
}

/** The estimated cost of a run with a valid configuration, from a start step in case of a fork. */
export function estimateQuery(team: string, spec: Run["spec"] | null, startStep: number) {
  return queryOptions({
    queryKey: ["estimate", team, spec, startStep],
    queryFn: async ({ signal }): Promise<RunEstimate> => {
      if (spec === null) throw new Error("only what is valid is estimated");
      const params = { path: { team }, query: { begin_step: startStep } };
      return body(await api.POST("/api/v1/teams/{team}/runs/estimate", { params, body: spec, signal }));
    },
    placeholderData: keepPreviousData,
    staleTime: 60_000,
    gcTime: 60_000,
  });
}
