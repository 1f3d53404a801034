import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { AttemptMark, Metrics } from "@/api/types";
import type { Columns } from "@/lib/series";

/** More than a chart has pixels; the API down-samples longer series to this. */
const POINTS = 1_200;

export interface LiveMetrics {
  columns: Columns;
  attempts: AttemptMark[];
  /** Where the stream goes on from. */
  cursor: string;
  /** Differs after every load, so that the stream begins again behind it. */
  loaded: number;
}

export function metricsQuery(team: string, run: string) {
  return queryOptions({
    queryKey: ["run", team, run, "metrics"],
    queryFn: async ({ signal }) =>
      columnsOf(
        body(
          await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
            params: { path: { team, run }, query: { points: POINTS } },
            signal,
          }),
        ),
      ),
    structuralSharing: false,
    staleTime: Infinity,
  });
}

export function streamUrl(team: string, run: string): string {
  return `/api/v1/teams/${encodeURIComponent(team)}/runs/${encodeURIComponent(run)}/metrics/stream`;
}

let loads = 0;

function columnsOf({ series, attempts, cursor }: Metrics): LiveMetrics {
  loads += 1;
  const columns = Object.fromEntries(series.map(({ name, steps, values }) => [name, { steps, values }]));
  return { columns, attempts, cursor, loaded: loads };
}
