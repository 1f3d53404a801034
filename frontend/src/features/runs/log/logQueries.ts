import { infiniteQueryOptions, keepPreviousData, queryOptions, type QueryClient } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { LogLine } from "@/api/types";

const LIVE_MS = 2_000;

/** Lines per request. */
export const PAGE_LINES = 500;
const MAX_MATCHES = 1_000;

export interface LogSource {
  team: string;
  run: string;
  attempt: number;
  file: string;
}

/** The logs of a run and their sizes. A growing size triggers a refetch of the log's end. */
export function logFilesQuery(team: string, run: string, live: boolean) {
  return queryOptions({
    queryKey: ["run", team, run, "logs"],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/runs/{run}/logs", { params: { path: { team, run } }, signal })),
    refetchInterval: live ? LIVE_MS : false,
  });
}

/** Number of lines of a log of this size. */
export function logTotalQuery(place: LogSource, bytes: number) {
  return queryOptions({
    queryKey: [...keyOf(place), "total", bytes],
    queryFn: async ({ signal }) => (await readLines(place, 1, 1, signal)).total,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    gcTime: 10_000,
  });
}

/**
 * One page of lines, counted from 0. A full page never changes; the last one is refetched as the log grows, and
 * keeps its known lines until then.
 */
export function logPageQuery(client: QueryClient, place: LogSource, page: number, total: number, bytes: number) {
  const full = (page + 1) * PAGE_LINES < total;
  const pageKey = [...keyOf(place), "page", page];
  return queryOptions<LogLine[]>({
    queryKey: [...pageKey, full ? "full" : bytes],
    queryFn: ({ signal }) => readPage(place, page, signal),
    placeholderData: () => client.getQueriesData<LogLine[]>({ queryKey: pageKey }).findLast(([, known]) => known !== undefined)?.[1],
    staleTime: Infinity,
    gcTime: full ? 60_000 : 10_000,
  });
}

/**
 * Lines that contain `find`. The server searches a limited number of lines per request; the next request continues
 * after them.
 */
export function logMatchesQuery(place: LogSource, find: string) {
  return infiniteQueryOptions({
    queryKey: [...keyOf(place), "find", find],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/logs/{attempt}/{file}/search", {
          params: { path: place, query: { q: find, after_line: pageParam, limit: MAX_MATCHES } },
          signal,
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: (page) => page.searched_to,
    staleTime: Infinity,
    gcTime: 60_000,
  });
}

/** The most bytes that the server returns at once. */
const MAX_TEXT_BYTES = 2 ** 20;

/** A whole log, as far as it is written, in parts. */
export async function readLog(place: LogSource): Promise<string[]> {
  const parts: string[] = [];
  let offset = 0;
  for (;;) {
    const { text, next_offset, end } = body(
      await api.GET("/api/v1/teams/{team}/runs/{run}/logs/{attempt}/{file}", { params: { path: place, query: { offset, limit: MAX_TEXT_BYTES } } }),
    );
    parts.push(text);
    if (end || next_offset <= offset) return parts;
    offset = next_offset;
  }
}

function keyOf({ team, run, attempt, file }: LogSource) {
  return ["run", team, run, "log", attempt, file];
}

/** The server returns fewer lines if they are very long; the rest is requested separately. */
async function readPage(place: LogSource, page: number, signal: AbortSignal): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  let read = page * PAGE_LINES;
  for (;;) {
    const part = await readLines(place, read + 1, PAGE_LINES - lines.length, signal);
    lines.push(...part.lines);
    read += part.lines.length;
    if (part.lines.length === 0 || lines.length >= PAGE_LINES || read >= part.total) return lines;
  }
}

async function readLines(place: LogSource, first: number, limit: number, signal: AbortSignal) {
  return body(
    await api.GET("/api/v1/teams/{team}/runs/{run}/logs/{attempt}/{file}/lines", {
      params: { path: place, query: { first, limit } },
      signal,
    }),
  );
}
