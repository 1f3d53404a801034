import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Column } from "@/lib/series";
import { boundsOf, type StepWindow } from "@/lib/stepWindow";

export const PHASES = ["data", "forward", "backward", "collectives", "optimizer"] as const;

export type Phase = (typeof PHASES)[number];

const LIVE_MS = 4_000;
/** Four times as many as a map has columns: then each of them has a point, however the API thins the series out. */
const POINTS = 4 * 96;

export interface RankColumn {
  rank: number;
  column: Column;
}

interface Wish {
  team: string;
  run: string;
  phase: Phase;
  window: StepWindow | null;
  newest: number;
  live: boolean;
}

/** How long each rank spent in a phase, by rank. The stream leaves these out: they are asked for again and again. */
export function rankSecondsQuery({ team, run, phase, window, newest, live }: Wish) {
  const { from, to } = boundsOf(window, newest);
  const bounds = window === null ? {} : { after_step: from - 1, ...("last" in window ? {} : { to_step: to }) };
  return queryOptions({
    queryKey: ["run", team, run, "metrics", "ranks", phase, window],
    queryFn: async ({ signal }): Promise<RankColumn[]> => {
      const { series } = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
          params: { path: { team, run }, query: { names: [`rank_seconds/*:${phase}`], points: POINTS, ...bounds } },
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

/** `rank_seconds/3:forward` is of rank 3. */
function rankOf(series: string): number {
  return Number(/\/(\d+):/.exec(series)?.[1] ?? 0);
}
