import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { metricsQuery, type LiveMetrics } from "@/features/metrics/queries";
import { lastStep, within, type Columns } from "@/lib/series";
import { boundsOf, type StepWindow } from "@/lib/stepWindow";

/** What the charts show of a run's metrics. */
export interface Shown {
  columns: Columns;
  /** The window's own points are on their way: these are what was known of it before. */
  coarse: boolean;
  /** Why they do not come. */
  error: Error | null;
}

/** Who holds a key passes windows that nobody looks at. */
export const REST_MS = 60;

interface Looked {
  team: string;
  run: string;
  window: StepWindow | null;
  /** The window once it has rested: only then its own points are asked for. */
  rested: StepWindow | null;
}

/** What is known of a window of a run whose metrics are `whole`; undefined while nothing is. The stream goes on in it. */
export function useShown(whole: LiveMetrics | undefined, { team, run, window, rested }: Looked): Shown | undefined {
  const asked = window !== null && whole !== undefined && rested === window;
  const windowed = useQuery({ ...metricsQuery(team, run, window), enabled: asked });
  const own = window === null ? whole : windowed.data;
  const error = window === null ? null : windowed.error;
  return useMemo(() => {
    if (own !== undefined) return { columns: own.columns, coarse: false, error: null };
    if (whole === undefined) return undefined;
    const { from, to } = boundsOf(window, lastStep(whole.columns));
    return { columns: within(whole.columns, from, to), coarse: true, error };
  }, [whole, own, window, error]);
}
