import { usePrefetchQuery } from "@tanstack/react-query";
import { useMemo, type ReactNode } from "react";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { MetricsPanel } from "@/features/metrics/MetricsPanel";
import { PhaseBar } from "@/features/metrics/PhaseBar";
import type { LiveMetrics } from "@/features/metrics/queries";
import { REST_MS, useShown } from "@/features/metrics/useShown";
import type { ChartView } from "@/features/metrics/view";
import { CompareWith } from "@/features/runs/CompareWith";
import { othersQuery } from "@/features/runs/queries";
import type { StepWindow } from "@/lib/stepWindow";
import { useDebounced } from "@/lib/useDebounced";
import { useSettled } from "@/lib/useSettled";

interface Props {
  team: string;
  run: string;
  metrics: LiveMetrics | undefined;
  live: boolean;
  error: Error | null;
  onRetry: () => void;
  checkpointSteps: readonly number[];
  /** As it stands in the address. */
  view: ChartView;
  onView: (view: ChartView) => void;
  events: ReactNode;
  /** The map of ranks in a window, where there are several. */
  ranks: (window: StepWindow | null) => ReactNode;
}

/** A run's life on one page: its curves, where a step's time goes, what happened. */
export function Overview({ team, run, metrics, live, error, onRetry, checkpointSteps, view, onView, events, ranks }: Props) {
  const [chosen, choose] = useSettled(view, onView);
  const rested = useDebounced(chosen.window, REST_MS);
  const shown = useShown(metrics, { team, run, window: chosen.window, rested });
  const compare = useMemo(() => <CompareWith team={team} run={run} />, [team, run]);
  // Whether there are other runs is known with the first curves, so that nothing moves.
  usePrefetchQuery(othersQuery(team, run, ""));
  if (metrics === undefined || shown === undefined) {
    return error === null ? <Skeleton rows={1} height={280} /> : <ErrorState error={error} onRetry={onRetry} />;
  }
  return (
    <>
      <MetricsPanel
        metrics={metrics}
        shown={shown}
        live={live}
        checkpointSteps={checkpointSteps}
        view={chosen}
        onView={choose}
        compare={compare}
      />
      <div className="mt-3 grid grid-cols-2 gap-3 max-desk:grid-cols-1">
        <PhaseBar columns={metrics.columns} />
        <section className="panel p-3">
          <h2 className="mb-2 font-medium">events</h2>
          {events}
        </section>
      </div>
      {ranks(rested)}
    </>
  );
}
