import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Columns } from "@/lib/series";
import { boundsOf, type StepWindow } from "@/lib/stepWindow";

const LIVE_MS = 4_000;
/** Four times as many as a heat map has columns: then each of them has a point, however the API thins the series out. */
const POINTS = 4 * 96;

/** Whose tensors are shown, and of which steps. */
export interface TensorPlace {
  team: string;
  run: string;
  live: boolean;
  window: StepWindow | null;
  /** The last step in which tensors were measured. */
  newest: number;
}

/** Names of the series of single tensors. All of them are there once one is. */
export function tensorSeriesQuery({ team, run, live }: TensorPlace) {
  return queryOptions({
    queryKey: ["run", team, run, "metrics", "tensors"],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics/names", {
          params: { path: { team, run }, query: { names: ["fp8_amax/*"] } },
          signal,
        }),
      ),
    staleTime: Infinity,
    refetchInterval: (query) => (live && (query.state.data ?? []).length === 0 ? LIVE_MS : false),
  });
}

/** The series of single tensors that a pattern means. They are asked for again and again: the stream leaves them out. */
export function tensorsQuery({ team, run, live, window, newest }: TensorPlace, pattern: string) {
  const { from, to } = boundsOf(window, newest);
  const bounds = window === null ? {} : { after_step: from - 1, ...("last" in window ? {} : { to_step: to }) };
  return queryOptions({
    queryKey: ["run", team, run, "metrics", "tensors", pattern, window],
    queryFn: async ({ signal }): Promise<Columns> => {
      const { series } = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
          params: { path: { team, run }, query: { names: [pattern], points: POINTS, ...bounds } },
          signal,
        }),
      );
      return Object.fromEntries(series.map(({ name, steps, values }) => [name, { steps, values }]));
    },
    placeholderData: keepPreviousData,
    staleTime: live ? LIVE_MS : Infinity,
    gcTime: 60_000,
    refetchInterval: live ? LIVE_MS : false,
  });
}
