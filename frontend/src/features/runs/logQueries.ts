import { infiniteQueryOptions, keepPreviousData, queryOptions, type QueryClient } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { LogLine } from "@/api/types";

const LIVE_MS = 2_000;

/** Lines of one request. */
export const PAGE_LINES = 500;
const MOST_MATCHES = 1_000;

export interface LogPlace {
  team: string;
  run: string;
  attempt: number;
  file: string;
}

/** The logs of a run and their sizes. A size that grew is what makes the end of a log be asked for again. */
export function logFilesQuery(team: string, run: string, live: boolean) {
  return queryOptions({
    queryKey: ["run", team, run, "logs"],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/runs/{run}/logs", { params: { path: { team, run } }, signal })),
    refetchInterval: live ? LIVE_MS : false,
  });
}

/** How many lines a log of so many bytes has. */
export function logTotalQuery(place: LogPlace, bytes: number) {
  return queryOptions({
    queryKey: [...keyOf(place), "total", bytes],
    queryFn: async ({ signal }) => (await readLines(place, 1, 1, signal)).total,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    gcTime: 10_000,
  });
}

/**
 * One page of lines, counted from 0. A full page never changes; the last one is asked for again as the log's bytes
 * grow, and what was known of it stays until then.
 */
export function logPageQuery(client: QueryClient, place: LogPlace, page: number, total: number, bytes: number) {
  const full = (page + 1) * PAGE_LINES < total;
  const ofPage = [...keyOf(place), "page", page];
  return queryOptions<LogLine[]>({
    queryKey: [...ofPage, full ? "full" : bytes],
    queryFn: ({ signal }) => readPage(place, page, signal),
    placeholderData: () => client.getQueriesData<LogLine[]>({ queryKey: ofPage }).findLast(([, known]) => known !== undefined)?.[1],
    staleTime: Infinity,
    gcTime: full ? 60_000 : 10_000,
  });
}

/** Lines that contain `find`; the server looks at a bounded stretch a request, and the next goes on behind it. */
export function logMatchesQuery(place: LogPlace, find: string) {
  return infiniteQueryOptions({
    queryKey: [...keyOf(place), "find", find],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/logs/{attempt}/{file}/search", {
          params: { path: place, query: { q: find, after_line: pageParam, limit: MOST_MATCHES } },
          signal,
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: (page) => page.searched_to,
    staleTime: Infinity,
    gcTime: 60_000,
  });
}

function keyOf({ team, run, attempt, file }: LogPlace) {
  return ["run", team, run, "log", attempt, file];
}

/** The server stops early where lines are very long; the rest of the page is asked for behind them. */
async function readPage(place: LogPlace, page: number, signal: AbortSignal): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  let behind = page * PAGE_LINES;
  for (;;) {
    const part = await readLines(place, behind + 1, PAGE_LINES - lines.length, signal);
    lines.push(...part.lines);
    behind += part.lines.length;
    if (part.lines.length === 0 || lines.length >= PAGE_LINES || behind >= part.total) return lines;
  }
}

async function readLines(place: LogPlace, first: number, limit: number, signal: AbortSignal) {
  return body(
    await api.GET("/api/v1/teams/{team}/runs/{run}/logs/{attempt}/{file}/lines", {
      params: { path: place, query: { first, limit } },
      signal,
    }),
  );
}
