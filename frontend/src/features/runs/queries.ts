import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Run, RunEvent } from "@/api/types";
import type { RunFilter } from "@/features/runs/runFilter";
import { isFinal } from "@/lib/runProgress";

const LIVE_MS = 2_000;
const PAGE = 100;

/** A configuration on its way: any JSON object until the API has validated it. */
export type SpecJson = Record<string, unknown>;

export function runsQuery(team: string, { q, state, tag, mine, sort, order }: RunFilter) {
  const by = mine === true ? "me" : undefined;
  return infiniteQueryOptions({
    queryKey: ["runs", team, { q, state, tag, by, sort, order }],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs", {
          params: { path: { team }, query: { q, state, tag, by, sort, order, limit: PAGE, cursor: pageParam ?? undefined } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    // All pages are asked for again each time; more of them, less often.
    refetchInterval: ({ state: { data } }) => LIVE_MS * Math.max(1, data?.pages.length ?? 1),
  });
}

export function runQuery(team: string, run: string) {
  return queryOptions({
    queryKey: ["run", team, run],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run } }, signal })),
    refetchInterval: (query) => (query.state.data !== undefined && isFinal(query.state.data.state) ? false : LIVE_MS),
  });
}

/** Some runs of the team's, in one request; one that is not there is missing. */
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

const OTHERS = 20;

/** The team's newest runs but this one, by words of their names. */
export function othersQuery(team: string, run: string, q: string) {
  return queryOptions({
    queryKey: ["runs", team, "others", run, q],
    queryFn: async ({ signal }): Promise<Run[]> => {
      const query = { limit: OTHERS + 1, ...(q === "" ? {} : { q }) };
      const { items } = body(await api.GET("/api/v1/teams/{team}/runs", { params: { path: { team }, query }, signal }));
      return items.filter(({ id }) => id !== run).slice(0, OTHERS);
    },
    placeholderData: keepPreviousData,
    staleTime: 10_000,
  });
}

/** Events are numbered without gaps, so each look asks only for what came after the last one known. */
export function eventsQuery(team: string, run: string, live: boolean) {
  return queryOptions({
    queryKey: ["run", team, run, "events"],
    queryFn: async ({ signal, client, queryKey }) => {
      const known = client.getQueryData<RunEvent[]>(queryKey) ?? [];
      const after = known[known.length - 1]?.sequence ?? 0;
      const news = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/events", {
          params: { path: { team, run }, query: { after } },
          signal,
        }),
      );
      return [...known, ...news];
    },
    refetchInterval: live ? LIVE_MS : false,
  });
}

export const specQuery = queryOptions({
  queryKey: ["spec"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/spec", { signal })),
  staleTime: Infinity,
});

/** What the API says to a configuration, without submitting it. */
export function verdictsQuery(team: string, spec: SpecJson) {
  return queryOptions({
    queryKey: ["verdicts", team, spec],
    queryFn: async ({ signal }) =>
      body(await api.POST("/api/v1/teams/{team}/runs/validate", { params: { path: { team } }, body: spec, signal })),
    placeholderData: keepPreviousData,
    staleTime: 10_000,
    gcTime: 60_000,
  });
}

/** What the layout of a configuration comes to. */
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
