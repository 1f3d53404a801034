import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Columns } from "@/lib/charts/series";
import { boundsOf, type StepWindow } from "@/lib/charts/stepWindow";

const LIVE_MS = 4_000;
/** Four times the heat map's columns, so that every column has a point after any downsampling by the API. */
const POINTS = 4 * 96;

/** The run and steps whose tensors are shown. */
export interface TensorSource {
  team: string;
  run: string;
  live: boolean;
  window: StepWindow | null;
  /** The last step with tensor measurements. */
  newest: number;
}

/** Names of the per-tensor series. They all exist as soon as one does. */
export function tensorSeriesQuery({ team, run, live }: TensorSource) {
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

/** The per-tensor series that match a pattern. They are polled, because the stream does not include them. */
export function tensorsQuery({ team, run, live, window, newest }: TensorSource, pattern: string) {
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
