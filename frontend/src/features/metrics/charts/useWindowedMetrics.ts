import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { metricsQuery, type LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { lastStep, sliceSteps, type Columns } from "@/lib/charts/series";
import { boundsOf, type StepWindow } from "@/lib/charts/stepWindow";

/** The part of a run's metrics that the charts show. */
export interface WindowedMetrics {
  columns: Columns;
  /** The window's own points are still loading; these come from the full run. */
  isPlaceholder: boolean;
  /** Why they could not be loaded. */
  error: Error | null;
}

/** Holding down a key passes through windows that nobody reads. */
export const DEBOUNCE_MS = 60;

interface WindowRequest {
  team: string;
  run: string;
  window: StepWindow | null;
  /** The window after a short pause; only then are its own points requested. */
  debouncedWindow: StepWindow | null;
}

/**
 * The metrics of a window of the run whose metrics are `whole`; undefined until they are loaded. The stream
 * updates them.
 */
export function useWindowedMetrics(full: LiveMetrics | undefined, { team, run, window, debouncedWindow }: WindowRequest): WindowedMetrics | undefined {
  const isEnabled = window !== null && full !== undefined && debouncedWindow === window;
  const windowed = useQuery({ ...metricsQuery(team, run, window), enabled: isEnabled });
  const own = window === null ? full : windowed.data;
  const error = window === null ? null : windowed.error;
  return useMemo(() => {
    if (own !== undefined) return { columns: own.columns, isPlaceholder: false, error: null };
    if (full === undefined) return undefined;
    const { from, to } = boundsOf(window, lastStep(full.columns));
    return { columns: sliceSteps(full.columns, from, to), isPlaceholder: true, error };
  }, [full, own, window, error]);
}
