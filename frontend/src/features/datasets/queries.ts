import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Dataset } from "@/api/types";

export function datasetsQuery(team: string) {
  return infiniteQueryOptions({
    queryKey: ["datasets", team],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/datasets", {
          params: { path: { team }, query: pageParam === null ? {} : { cursor: pageParam } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: 3_000,
  });
}

export function datasetQuery(team: string, dataset: string) {
  return queryOptions({
    queryKey: ["dataset", team, dataset],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/datasets/{dataset}", { params: { path: { team, dataset } }, signal })),
    refetchInterval: (query) => (isPreparing(query.state.data) ? 1_000 : 5_000),
  });
}

export function rejectedQuery(team: string, dataset: string, version: number) {
  return queryOptions({
    queryKey: ["dataset", team, dataset, "rejected", version],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/datasets/{dataset}/versions/{number}/rejected", {
          params: { path: { team, dataset, number: version } },
          signal,
        }),
      ),
  });
}

export async function deleteDataset(team: string, dataset: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/datasets/{dataset}", { params: { path: { team, dataset } } });
}

function isPreparing(dataset: Dataset | undefined): boolean {
  const states = dataset?.versions.flatMap(({ preparations }) => preparations.map(({ state }) => state)) ?? [];
  return states.some((state) => state === "waiting" || state === "working");
}
