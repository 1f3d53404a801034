import { keepPreviousData, queryOptions, type UseQueryResult } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { ELAPSED, type Axis, type Columns } from "@/lib/charts/series";

const LIVE_MS = 5_000;

/** The target number of points of all lines in a chart, since no chart can show more. */
const TOTAL_POINTS = 12_000;
const [MIN_POINTS, MAX_POINTS] = [100, 1_600];

/** Curves by run. */
export type ColumnsByRun = ReadonlyMap<string, Columns>;

export interface ComparedRuns {
  columns: ColumnsByRun;
  pending: boolean;
  error: Error | null;
}

/** Combines the results; the value is stable until one of them changes. */
export function combineResults(results: UseQueryResult<ColumnsByRun>[]): ComparedRuns {
  return {
    columns: new Map(results.flatMap(({ data }) => [...(data ?? [])])),
    pending: results.some(({ isPending }) => isPending),
    error: results.find(({ error }) => error !== null)?.error ?? null,
  };
}

interface CompareRequest {
  team: string;
  runs: readonly string[];
  series: readonly string[];
  axis: Axis;
}

export interface StepRange {
  from: number;
  to: number;
}

/** Series of the compared runs, for all or some steps, in one request. */
export function comparedQuery({ team, runs, series, axis }: CompareRequest, steps: StepRange | null = null) {
  const points = Math.min(MAX_POINTS, Math.max(MIN_POINTS, Math.round(TOTAL_POINTS / Math.max(1, runs.length) / 100) * 100));
  const names = [...new Set([...series, ...axisSeries(axis)])].sort();
  const bounds = steps === null ? {} : { after_step: Math.max(-1, steps.from - 1), to_step: steps.to };
  return queryOptions({
    queryKey: ["compared", team, "metrics", runs, names, points, steps],
    queryFn: async ({ signal }): Promise<ColumnsByRun> => {
      if (runs.length === 0 || series.length === 0) return new Map();
      const response = body(
        await api.GET("/api/v1/teams/{team}/metrics", {
          params: { path: { team }, query: { runs: [...runs], names, points, ...bounds } },
          signal,
        }),
      );
      return new Map(
        response.map(({ run, series }) => [run, Object.fromEntries(series.map(({ name, steps: at, values }) => [name, { steps: at, values }]))]),
      );
    },
    structuralSharing: false,
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    gcTime: 60_000,
  });
}

/** The same for live runs, polled. */
export function liveQuery(request: CompareRequest) {
  return queryOptions({ ...comparedQuery(request), staleTime: LIVE_MS, refetchInterval: LIVE_MS * Math.max(1, request.runs.length / 10) });
}

function axisSeries(axis: Axis): string[] {
  return axis === "tokens" ? ["tokens"] : axis === "time" ? [ELAPSED] : [];
}
