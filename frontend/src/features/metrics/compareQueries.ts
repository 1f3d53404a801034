import { keepPreviousData, queryOptions, type UseQueryResult } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { ELAPSED, type Axis, type Columns } from "@/lib/series";

const LIVE_MS = 5_000;

/** All lines of a chart together have about this many points, since none can show more. */
const POINTS_OF_ALL = 20_000;
const [LEAST_POINTS, MOST_POINTS] = [200, 1_600];

export interface ComparedRun {
  run: string;
  columns: Columns;
}

export interface ComparedRuns {
  /** By run. */
  columns: ReadonlyMap<string, Columns>;
  fetching: boolean;
  pending: boolean;
  error: Error | null;
}

/** The answers of all runs as one thing, the same until one of them changes. */
export function combined(results: UseQueryResult<ComparedRun>[]): ComparedRuns {
  return {
    columns: new Map(results.flatMap(({ data }) => (data === undefined ? [] : [[data.run, data.columns]]))),
    fetching: results.some(({ isFetching }) => isFetching),
    pending: results.some(({ isPending }) => isPending),
    error: results.find(({ error }) => error !== null)?.error ?? null,
  };
}

interface Wish {
  team: string;
  run: string;
  series: readonly string[];
  axis: Axis;
  /** How many runs are compared. */
  compared: number;
  live: boolean;
  /** The steps to be seen more closely; null: all. */
  steps: { from: number; to: number } | null;
}

/** Series of one run among those compared, in one request. */
export function comparedQuery({ team, run, series, axis, compared, live, steps }: Wish) {
  const points = Math.min(MOST_POINTS, Math.max(LEAST_POINTS, Math.round(POINTS_OF_ALL / Math.max(1, compared) / 100) * 100));
  const names = [...new Set([...series, ...positions(axis)])].sort();
  const bounds = steps === null ? {} : { after_step: Math.max(-1, steps.from - 1), to_step: steps.to };
  return queryOptions({
    queryKey: ["run", team, run, "compared", names, points, steps],
    queryFn: async ({ signal }): Promise<ComparedRun> => {
      const answer = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
          params: { path: { team, run }, query: { names, points, ...bounds } },
          signal,
        }),
      );
      return { run, columns: Object.fromEntries(answer.series.map(({ name, steps: at, values }) => [name, { steps: at, values }])) };
    },
    structuralSharing: false,
    placeholderData: keepPreviousData,
    staleTime: live ? LIVE_MS : Infinity,
    gcTime: 60_000,
    refetchInterval: live && steps === null ? LIVE_MS * Math.max(1, compared / 10) : false,
  });
}

function positions(axis: Axis): string[] {
  return axis === "tokens" ? ["tokens"] : axis === "time" ? [ELAPSED] : [];
}
