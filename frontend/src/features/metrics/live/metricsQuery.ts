import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { AttemptMark, Metrics } from "@/api/types";
import { append, ELAPSED, lastStep, sliceSteps, type Columns } from "@/lib/charts/series";
import { boundsOf, type StepWindow } from "@/lib/charts/stepWindow";

/** All series of a run's page except per-tensor ones, so that one request and one stream fetch them. */
const RUN_SERIES = [
  "loss",
  "validation_loss",
  "grad_norm",
  "learning_rate",
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
  "other_seconds",
  "skipped_steps",
  "fp8_saturated",
  "fp8_underflow",
  "fp8_lost_updates",
  "fp8_smallest_headroom",
  "cpu_utilization",
  "run_cpu_cores",
  "node_memory_bytes",
  "run_memory_bytes",
  "node_disk_bytes",
  "mean_gpu_utilization",
  "max_gpu_memory_bytes",
  "total_gpu_power_watts",
  "max_gpu_temperature_celsius",
];

export interface LiveMetrics {
  columns: Columns;
  attempts: AttemptMark[];
  /** The window of these metrics; null: the full run. */
  window: StepWindow | null;
  /** Where the stream resumes. */
  cursor: string;
  /** Changes with every load, so that the stream restarts from its cursor. */
  loaded: number;
}

/** A run's metrics, for a window or the full run, downsampled by the API to what a screen can show. */
export function metricsQuery(team: string, run: string, window: StepWindow | null = null) {
  const fullKey = metricsKey(team, run);
  return queryOptions({
    queryKey: window === null ? fullKey : [...windowsKey(team, run), window],
    queryFn: async ({ signal, client }) => {
      const newest = () => client.getQueryData<LiveMetrics>(fullKey)?.columns ?? {};
      const follows = window !== null && "last" in window;
      const { from, to: end } = boundsOf(window, lastStep(newest()));
      const to = follows ? Infinity : end;
      const bounds = window === null ? {} : { after_step: from - 1, ...(follows ? {} : { to_step: to }) };
      const response = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
          params: { path: { team, run }, query: { names: window === null ? [...RUN_SERIES, ELAPSED] : RUN_SERIES, points: screenPoints(), ...bounds } },
          signal,
        }),
      );
      const metrics = metricsOf(response, window);
      return window === null ? metrics : { ...metrics, columns: withStreamed(metrics.columns, newest(), from, to) };
    },
    structuralSharing: false,
    staleTime: Infinity,
    ...(window === null ? {} : { gcTime: 60_000 }),
  });
}

export function metricsKey(team: string, run: string) {
  return ["run", team, run, "metrics"];
}

/** Common prefix of all window keys. */
export function windowsKey(team: string, run: string) {
  return [...metricsKey(team, run), "window"];
}

export function streamUrl(team: string, run: string): string {
  const names = RUN_SERIES.map((name) => `names=${name}`).join("&");
  return `/api/v1/teams/${encodeURIComponent(team)}/runs/${encodeURIComponent(run)}/metrics/stream?${names}`;
}

const PER_RANK_POINTS = 400;
const MAX_WIDTH_PX = 1_440;
const MAX_POINTS = 4_000;

/** Many series of a run that its page fetches only on demand, such as those of each rank. */
export function perRankSeriesQuery(team: string, run: string, window: StepWindow | null, families: readonly string[]) {
  return queryOptions({
    // Not under `windowsKey`, whose queries take the events of the stream.
    queryKey: [...metricsKey(team, run), "perRank", window, families],
    queryFn: async ({ signal, client }): Promise<Columns> => {
      const { from, to } = boundsOf(window, lastStep(client.getQueryData<LiveMetrics>(metricsKey(team, run))?.columns ?? {}));
      const follows = window === null || "last" in window;
      const response = body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/metrics", {
          params: {
            path: { team, run },
            query: { names: families.map((family) => `${family}/*`), points: PER_RANK_POINTS, after_step: from - 1, ...(follows ? {} : { to_step: to }) },
          },
          signal,
        }),
      );
      return Object.fromEntries(response.series.map(({ name, steps, values }) => [name, { steps, values }]));
    },
    structuralSharing: false,
  });
}

/** About one point per pixel of the widest chart, rounded so that similar window sizes share a request. */
function screenPoints(): number {
  const pixels = Math.min(window.innerWidth, MAX_WIDTH_PX) * window.devicePixelRatio;
  return Math.min(MAX_POINTS, Math.max(600, Math.ceil(pixels / 400) * 400));
}

/** Adds what the stream delivered while the response was in flight. */
function withStreamed(columns: Columns, full: Columns, from: number, to: number): Columns {
  const since = sliceSteps(full, Math.max(from, lastStep(columns) + 1), to);
  return Object.entries(since).reduce((merged, [name, { steps, values }]) => append(merged, steps, { [name]: values }), columns);
}

let loadCount = 0;

function metricsOf({ series, attempts, cursor }: Metrics, window: StepWindow | null): LiveMetrics {
  loadCount += 1;
  const columns = Object.fromEntries(series.map(({ name, steps, values }) => [name, { steps, values }]));
  return { columns, attempts, window, cursor, loaded: loadCount };
}
