import { usePrefetchQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { MetricsPanel } from "@/features/metrics/charts/MetricsPanel";
import { StepTimeBar } from "@/features/metrics/timing/StepTimeBar";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { DEBOUNCE_MS, useWindowedMetrics } from "@/features/metrics/charts/useWindowedMetrics";
import type { ChartView } from "@/features/metrics/charts/chartView";
import { CompareWith } from "@/features/runs/compare/CompareWith";
import { otherRunsQuery } from "@/features/runs/queries";
import type { StepWindow } from "@/lib/charts/stepWindow";
import { useDebounced } from "@/lib/hooks/useDebounced";
import { useDelayedCommit } from "@/lib/hooks/useDelayedCommit";

interface Props {
  team: string;
  run: Run;
  metrics: LiveMetrics | undefined;
  live: boolean;
  error: Error | null;
  onRetry: () => void;
  checkpointSteps: readonly number[];
  /** As in the address. */
  view: ChartView;
  onView: (view: ChartView) => void;
  events: ReactNode;
  /** The heat map of ranks for a window, if there are several ranks. */
  ranks: (window: StepWindow | null) => ReactNode;
}

/** The overview of a run: its curves, where a step's time goes, and its latest events. */
export function OverviewTab({ team, run, metrics, live, error, onRetry, checkpointSteps, view, onView, events, ranks }: Props) {
  const [settledView, setView] = useDelayedCommit(view, onView);
  const debouncedWindow = useDebounced(settledView.window, DEBOUNCE_MS);
  const shown = useWindowedMetrics(metrics, { team, run: run.id, window: settledView.window, debouncedWindow });
  const compare = useMemo(() => <CompareWith team={team} runs={[run.id]} label="compare with" />, [team, run.id]);
  // Loaded together with the first curves, so that the layout does not shift.
  usePrefetchQuery(otherRunsQuery(team, [run.id], ""));
  if (metrics === undefined || shown === undefined) {
    return error === null ? <Skeleton rows={1} height={280} /> : <ErrorState error={error} onRetry={onRetry} />;
  }
  return (
    <>
      <MetricsPanel
        team={team}
        run={run.id}
        metrics={metrics}
        shown={shown}
        live={live}
        isPeakKnown={run.summary.mfu_unknown == null}
        ranks={run.spec.resources.nodes * run.spec.resources.slots_per_node}
        checkpointSteps={checkpointSteps}
        view={settledView}
        onView={setView}
        compare={compare}
      />
      <div className="mt-3 grid auto-cols-fr gap-3 desk:grid-flow-col">
        {metrics.columns["loss"] !== undefined && <StepTimeBar columns={metrics.columns} />}
        <section className="panel p-3">
          <div className="mb-2 flex items-baseline justify-between gap-4">
            <h2 className="font-medium">events</h2>
            <Link to="/$team/runs/$runId/$tab" params={{ team, runId: run.id, tab: "events" }} className="text-small text-accent hover:underline max-tablet:leading-10">
              Show all
            </Link>
          </div>
          {events}
        </section>
      </div>
      {ranks(debouncedWindow)}
    </>
  );
}
