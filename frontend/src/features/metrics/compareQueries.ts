import { keepPreviousData, queryOptions, type UseQueryResult } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { ELAPSED, type Axis, type Columns } from "@/lib/series";

const LIVE_MS = 5_000;

/** All lines of a chart together have about this many points, since none can show more. */
const POINTS_OF_ALL = 12_000;
const [LEAST_POINTS, MOST_POINTS] = [100, 1_600];

/** By run. */
export type ColumnsByRun = ReadonlyMap<string, Columns>;

export interface ComparedRuns {
  columns: ColumnsByRun;
  pending: boolean;
  error: Error | null;
}

/** The answers as one thing, the same until one of them changes. */
export function combined(results: UseQueryResult<ColumnsByRun>[]): ComparedRuns {
  return {
    columns: new Map(results.flatMap(({ data }) => [...(data ?? [])])),
    pending: results.some(({ isPending }) => isPending),
    error: results.find(({ error }) => error !== null)?.error ?? null,
  };
}

interface Wish {
  team: string;
  runs: readonly string[];
  series: readonly string[];
  axis: Axis;
}

export interface Steps {
  from: number;
  to: number;
}

/** Series of the runs compared, of all steps or of some, in one request. */
export function comparedQuery({ team, runs, series, axis }: Wish, steps: Steps | null = null) {
  const points = Math.min(MOST_POINTS, Math.max(LEAST_POINTS, Math.round(POINTS_OF_ALL / Math.max(1, runs.length) / 100) * 100));
  const names = [...new Set([...series, ...positions(axis)])].sort();
  const bounds = steps === null ? {} : { after_step: Math.max(-1, steps.from - 1), to_step: steps.to };
  return queryOptions({
    queryKey: ["compared", team, "metrics", runs, names, points, steps],
    queryFn: async ({ signal }): Promise<ColumnsByRun> => {
      if (runs.length === 0 || series.length === 0) return new Map();
      const answer = body(
        await api.GET("/api/v1/teams/{team}/metrics", {
          params: { path: { team }, query: { runs: [...runs], names, points, ...bounds } },
          signal,
        }),
      );
      return new Map(
        answer.map(({ run, series }) => [run, Object.fromEntries(series.map(({ name, steps: at, values }) => [name, { steps: at, values }]))]),
      );
    },
    structuralSharing: false,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    gcTime: 60_000,
  });
}

/** The same of the runs that go on, again and again. */
export function liveQuery(wish: Wish) {
  return queryOptions({ ...comparedQuery(wish), staleTime: LIVE_MS, refetchInterval: LIVE_MS * Math.max(1, wish.runs.length / 10) });
}

function positions(axis: Axis): string[] {
  return axis === "tokens" ? ["tokens"] : axis === "time" ? [ELAPSED] : [];
}
