import type { ReactNode } from "react";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { MetricsPanel } from "@/features/metrics/MetricsPanel";
import { PhaseBar } from "@/features/metrics/PhaseBar";
import type { LiveMetrics } from "@/features/metrics/queries";
import type { Shown } from "@/features/metrics/useLiveMetrics";
import type { ChartView } from "@/features/metrics/view";

interface Props {
  metrics: LiveMetrics | undefined;
  shown: Shown | undefined;
  live: boolean;
  error: Error | null;
  onRetry: () => void;
  checkpointSteps: readonly number[];
  view: ChartView;
  onView: (view: ChartView) => void;
  events: ReactNode;
  /** The map of ranks, where there are several. */
  ranks: ReactNode;
}

/** A run's life on one page: its curves, where a step's time goes, what happened. */
export function Overview({ metrics, shown, live, error, onRetry, checkpointSteps, view, onView, events, ranks }: Props) {
  if (metrics === undefined || shown === undefined) {
    return error === null ? <Skeleton rows={1} height={280} /> : <ErrorState error={error} onRetry={onRetry} />;
  }
  return (
    <>
      <MetricsPanel metrics={metrics} shown={shown} live={live} checkpointSteps={checkpointSteps} view={view} onView={onView} />
      <div className="mt-3 grid grid-cols-2 gap-3 max-desk:grid-cols-1">
        <PhaseBar columns={metrics.columns} />
        <section className="panel p-3">
          <h2 className="mb-2 font-medium">events</h2>
          {events}
        </section>
      </div>
      {ranks}
    </>
  );
}
