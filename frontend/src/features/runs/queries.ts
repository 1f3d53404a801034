import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Run, RunEvent } from "@/api/types";
import { isFinal } from "@/lib/runProgress";

const LIVE_MS = 2_000;
const PAGE = 50;

/** A configuration on its way: any JSON object until the API has validated it. */
export type SpecJson = Record<string, unknown>;

export function runsQuery(team: string) {
  return infiniteQueryOptions({
    queryKey: ["runs", team],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs", {
          params: { path: { team }, query: { limit: PAGE, ...(pageParam === null ? {} : { cursor: pageParam }) } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: LIVE_MS,
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

export function logFilesQuery(team: string, run: string, live: boolean) {
  return queryOptions({
    queryKey: ["run", team, run, "logs"],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/runs/{run}/logs", { params: { path: { team, run } }, signal })),
    refetchInterval: live ? LIVE_MS : false,
  });
}

export interface LogPlace {
  team: string;
  run: string;
  attempt: number;
  file: string;
}

export interface LogTail {
  text: string;
  /** First byte of the file that `text` holds. */
  from: number;
  next: number;
}

const FIRST_LOOK_BYTES = 131_072;
const PIECE_BYTES = 262_144;

/** The end of a log. Each look adds what was written since. */
export function logQuery(place: LogPlace, size: number, live: boolean) {
  return queryOptions({
    queryKey: ["run", place.team, place.run, "log", place.attempt, place.file],
    queryFn: async ({ signal, client, queryKey }) => {
      const start = Math.max(0, size - FIRST_LOOK_BYTES);
      let tail = client.getQueryData<LogTail>(queryKey) ?? { text: "", from: start, next: start };
      for (;;) {
        const piece = await readLog(place, tail.next, PIECE_BYTES, signal);
        tail = { text: tail.text + piece.text, from: tail.from, next: piece.next_offset };
        if (piece.end || piece.next_offset <= piece.offset) return tail;
      }
    },
    refetchInterval: live ? LIVE_MS : false,
  });
}

/** The stretch before what is shown. */
export async function earlierLog(place: LogPlace, tail: LogTail): Promise<LogTail> {
  const from = Math.max(0, tail.from - PIECE_BYTES);
  const piece = await readLog(place, from, tail.from - from);
  return { text: piece.text + tail.text, from, next: tail.next };
}

async function readLog(place: LogPlace, offset: number, limit: number, signal?: AbortSignal) {
  return body(
    await api.GET("/api/v1/teams/{team}/runs/{run}/logs/{attempt}/{file}", {
      params: { path: place, query: { offset, limit } },
      ...(signal === undefined ? {} : { signal }),
    }),
  );
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
    staleTime: 60_000,
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
