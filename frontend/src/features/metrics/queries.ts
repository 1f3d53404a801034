import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { AttemptMark, Metrics } from "@/api/types";
import { append, ELAPSED, lastStep, within, type Columns } from "@/lib/series";
import { boundsOf, type StepWindow } from "@/lib/stepWindow";

/** What the pages of a run draw, tensors apart: one request and one stream bring all of it. */
const DRAWN = [
  "loss",
  "validation_loss",
  "grad_norm",
  "tokens",
  "tokens_per_second",
  "mfu",
  "bf16_mfu",
  "hfu",
  "memory_bytes",
  "seconds",
  "data_seconds",
  "forward_seconds",
  "backward_seconds",
  "collectives_seconds",
  "optimizer_seconds",
  "skipped_steps",
  "fp8_saturated",
  "fp8_flushed",
  "fp8_lost_updates",
  "fp8_smallest_headroom",
];

export interface LiveMetrics {
  columns: Columns;
  attempts: AttemptMark[];
  /** The steps that these are of; null: all. */
  window: StepWindow | null;
  /** Where the stream goes on from. */
  cursor: string;
  /** Differs after every load, so that the stream begins again behind it. */
  loaded: number;
}

/** A run's curves, of a window as of the whole: the API thins either out to what a screen can show. */
export function metricsQuery(team: string, run: string, window: StepWindow | null = null) {
  const whole = metricsKey(team, run);
  return queryOptions({
    queryKey: window === null ? whole : [...windowsKey(team, run), window],
    queryFn: async ({ signal, client }) => {
      const newest = () => client.getQueryData<LiveMetrics>(whole)?.columns ?? {};
      const follows = window !== null && "last" in window;
      const { from, to: end } = boundsOf(window, lastStep(newest()));
      const to = follows ? Infinity : end;
      const bounds = window === null ? {} : { after_step: from - 1, ...(follows ? {} : { to_step: to }) };
      const answer = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
          params: { path: { team, run }, query: { names: window === null ? [...DRAWN, ELAPSED] : DRAWN, points: pointsOfScreen(), ...bounds } },
          signal,
        }),
      );
      const metrics = metricsOf(answer, window);
      return window === null ? metrics : { ...metrics, columns: caughtUp(metrics.columns, newest(), from, to) };
    },
    structuralSharing: false,
    staleTime: Infinity,
    ...(window === null ? {} : { gcTime: 60_000 }),
  });
}

export function metricsKey(team: string, run: string) {
  return ["run", team, run, "metrics"];
}

/** What all windows' keys begin with. */
export function windowsKey(team: string, run: string) {
  return [...metricsKey(team, run), "window"];
}

export function streamUrl(team: string, run: string): string {
  const names = DRAWN.map((name) => `names=${name}`).join("&");
  return `/api/v1/teams/${encodeURIComponent(team)}/runs/${encodeURIComponent(run)}/metrics/stream?${names}`;
}

const WIDEST_PX = 1_440;
const MOST = 4_000;

/** About a point for each pixel of the widest chart; by hundreds, so that a narrower window asks for the same again. */
function pointsOfScreen(): number {
  const pixels = Math.min(window.innerWidth, WIDEST_PX) * window.devicePixelRatio;
  return Math.min(MOST, Math.max(600, Math.ceil(pixels / 400) * 400));
}

/** With what the stream brought for the whole run while the answer was on its way. */
function caughtUp(columns: Columns, whole: Columns, from: number, to: number): Columns {
  const since = within(whole, Math.max(from, lastStep(columns) + 1), to);
  return Object.entries(since).reduce((merged, [name, { steps, values }]) => append(merged, steps, { [name]: values }), columns);
}

let loads = 0;

function metricsOf({ series, attempts, cursor }: Metrics, window: StepWindow | null): LiveMetrics {
  loads += 1;
  const columns = Object.fromEntries(series.map(({ name, steps, values }) => [name, { steps, values }]));
  return { columns, attempts, window, cursor, loaded: loads };
}
