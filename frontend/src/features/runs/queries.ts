import { infiniteQueryOptions, keepPreviousData, queryOptions, type QueryClient } from "@tanstack/react-query";
import { allItems } from "@/api/allItems";
import { api, body, WHOLE_LIST } from "@/api/client";
import type { Run, RunEvent } from "@/api/types";
import type { RunFilter, RunGrouping } from "@/features/runs/list/runFilter";
import { isFinal } from "@/lib/runs/runProgress";

const LIVE_MS = 2_000;
const GROUPS_MS = 5_000;
const PAGE_SIZE = 100;

/** A configuration before validation: any JSON object. */
export type SpecJson = Record<string, unknown>;

export function runsQuery(team: string, filter: RunFilter) {
  const query = { ...filterQuery(filter), sort: filter.sort, order: filter.order };
  return infiniteQueryOptions({
    queryKey: ["runs", team, query],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs", {
          params: { path: { team }, query: { ...query, limit: PAGE_SIZE, cursor: pageParam ?? undefined } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    // Every refetch loads all pages, so more pages are refetched less often.
    refetchInterval: ({ state: { data } }) => LIVE_MS * Math.max(1, data?.pages.length ?? 1),
  });
}

/** The groups of the runs that match, the one with the newest run first. */
export function runGroupsQuery(team: string, filter: RunFilter, group: RunGrouping) {
  const query = { ...filterQuery(filter), group };
  return queryOptions({
    queryKey: ["runs", team, "groups", query],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/runs/groups", { params: { path: { team }, query }, signal })).items,
    refetchInterval: GROUPS_MS,
  });
}

function filterQuery({ q, state, tag, mine, untagged, dataset, model }: RunFilter) {
  return { q, state, tag, by: mine === true ? "me" : undefined, untagged, dataset, model };
}

/** Address of a file with all runs that match. */
export function exportUrl(team: string, filter: RunFilter, format: "csv" | "parquet"): string {
  const asked = new URLSearchParams({ format });
  for (const [name, value] of Object.entries({ ...filterQuery(filter), sort: filter.sort, order: filter.order })) {
    for (const one of [value].flat()) if (one !== undefined) asked.append(name, String(one));
  }
  return `/api/v1/teams/${encodeURIComponent(team)}/runs/export?${asked.toString()}`;
}

export function runQuery(team: string, run: string) {
  return queryOptions({
    queryKey: ["run", team, run],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run } }, signal })),
    refetchInterval: (query) => (query.state.data !== undefined && isFinal(query.state.data.state) ? false : LIVE_MS),
  });
}

/** Stores the run that an action returned. A poll in flight is cancelled: it would bring back the earlier state. */
export async function storeRun(client: QueryClient, team: string, run: Run): Promise<void> {
  const { queryKey } = runQuery(team, run.id);
  await client.cancelQueries({ queryKey, exact: true });
  client.setQueryData(queryKey, run);
}

/** Some of the team's runs in one request; unknown ids are missing from the result. */
export function someRunsQuery(team: string, ids: readonly string[]) {
  return queryOptions({
    queryKey: ["compared", team, "runs", ids],
    queryFn: async ({ signal }): Promise<Run[]> => {
      if (ids.length === 0) return [];
      const query = { ids: [...ids], limit: ids.length };
      return body(await api.GET("/api/v1/teams/{team}/runs", { params: { path: { team }, query }, signal })).items;
    },
    refetchInterval: ({ state: { data } }) =>
      data === undefined || data.every(({ state }) => isFinal(state)) ? (false as const) : LIVE_MS * Math.max(1, ids.length / 5),
  });
}

const MAX_OTHERS = 20;

const MAX_NAMES = 200;

/** Names of the team's newest runs. */
export function runNamesQuery(team: string) {
  return queryOptions({
    queryKey: ["runs", team, "names"],
    queryFn: async ({ signal }): Promise<string[]> => {
      const params = { path: { team }, query: { limit: MAX_NAMES } };
      return body(await api.GET("/api/v1/teams/{team}/runs", { params, signal })).items.map(({ name }) => name);
    },
  });
}

/** Ids of the runs with this name, of the newest `MAX_NAMES` whose names have its words. */
export async function runIdsNamed(team: string, name: string): Promise<string[]> {
  const params = { path: { team }, query: { q: name, limit: MAX_NAMES } };
  const { items } = body(await api.GET("/api/v1/teams/{team}/runs", { params }));
  return items.filter((run) => run.name === name).map(({ id }) => id);
}

/** The team's newest runs except this one, filtered by name. */
export function otherRunsQuery(team: string, runs: readonly string[], q: string) {
  return queryOptions({
    queryKey: ["runs", team, "others", runs, q],
    queryFn: async ({ signal }): Promise<Run[]> => {
      const query = { limit: MAX_OTHERS + runs.length, ...(q === "" ? {} : { q }) };
      const { items } = body(await api.GET("/api/v1/teams/{team}/runs", { params: { path: { team }, query }, signal }));
      return items.filter(({ id }) => !runs.includes(id)).slice(0, MAX_OTHERS);
    },
    placeholderData: keepPreviousData,
    staleTime: 10_000,
  });
}

/** Events are numbered without gaps, so each refetch asks only for newer ones. */
export function eventsQuery(team: string, run: string, live: boolean) {
  return queryOptions({
    queryKey: ["run", team, run, "events"],
    queryFn: async ({ signal, client, queryKey }) => {
      const known = client.getQueryData<RunEvent[]>(queryKey) ?? [];
      const after = known[known.length - 1]?.sequence ?? 0;
      const newEvents = await allItems(async (cursor) =>
        body(
          await api.GET("/api/v1/teams/{team}/runs/{run}/events", {
            params: { path: { team, run }, query: { after, cursor, ...WHOLE_LIST } },
            signal,
          }),
        ),
      );
      return [...known, ...newEvents];
    },
    refetchInterval: live ? LIVE_MS : false,
  });
}

export const specQuery = queryOptions({
  queryKey: ["spec"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/spec", { signal })),
  staleTime: Infinity,
});

/** Validates a configuration without submitting it; that of a fork against its checkpoint too. */
export function specCheckQuery(team: string, spec: SpecJson, checkpoint?: string) {
  return queryOptions({
    queryKey: ["specCheck", team, spec, checkpoint],
    queryFn: async ({ signal }) =>
      body(
        await api.POST("/api/v1/teams/{team}/runs/validate", {
          params: { path: { team }, query: checkpoint === undefined ? {} : { checkpoint } },
          body: spec,
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: 10_000,
    gcTime: 60_000,
  });
}

/** The planned layout of a configuration. */
export function planQuery(team: string, spec: SpecJson) {
  return queryOptions({
    queryKey: ["plan", team, spec],
    queryFn: async ({ signal }) =>
      body(
        await api.POST("/api/v1/teams/{team}/runs/plan", {
          params: { path: { team } },
          body: spec as unknown as Run["spec"],
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: 10_000,
    gcTime: 60_000,
  });
}

export async function createRun(team: string, spec: SpecJson, idempotencyKey: string): Promise<Run> {
  return body(
    await api.POST("/api/v1/teams/{team}/runs", {
      params: { path: { team }, header: { "idempotency-key": idempotencyKey } },
      body: spec as unknown as Run["spec"],
    }),
  );
}

export async function cancelRun(team: string, run: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/cancel", { params: { path: { team, run } } }));
}

export async function deleteRun(team: string, run: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run } } });
}
