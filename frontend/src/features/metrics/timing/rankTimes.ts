import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Column } from "@/lib/charts/series";
import { boundsOf, type StepWindow } from "@/lib/charts/stepWindow";

export const STEP_PARTS = ["data", "forward", "backward", "collectives", "optimizer", "other"] as const;

export type StepPart = (typeof STEP_PARTS)[number];

const LIVE_MS = 4_000;
/** Four times the heat map's columns, so that every column has a point after any downsampling by the API. */
const POINTS = 4 * 96;

export interface RankColumn {
  rank: number;
  column: Column;
}

interface RankTimesRequest {
  team: string;
  run: string;
  part: StepPart;
  window: StepWindow | null;
  newest: number;
  live: boolean;
}

/** The time each rank spent in one part of a step. Polled, because the stream does not include it. */
export function rankTimesQuery({ team, run, part, window, newest, live }: RankTimesRequest) {
  const { from, to } = boundsOf(window, newest);
  const bounds = window === null ? {} : { after_step: from - 1, ...("last" in window ? {} : { to_step: to }) };
  return queryOptions({
    queryKey: ["run", team, run, "metrics", "ranks", part, window],
    queryFn: async ({ signal }): Promise<RankColumn[]> => {
      const { series } = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
          params: { path: { team, run }, query: { names: [`rank_seconds/*:${part}`], points: POINTS, ...bounds } },
          signal,
        }),
      );
      const columns = series.map(({ name, steps, values }) => ({ rank: rankOf(name), column: { steps, values } }));
      return columns.sort((a, b) => a.rank - b.rank);
    },
    placeholderData: keepPreviousData,
    staleTime: live ? LIVE_MS : Infinity,
    gcTime: 60_000,
    refetchInterval: live ? LIVE_MS : false,
  });
}

/** `rank_seconds/3:forward` belongs to rank 3. */
function rankOf(series: string): number {
  return Number(/\/(\d+):/.exec(series)?.[1] ?? 0);
}
