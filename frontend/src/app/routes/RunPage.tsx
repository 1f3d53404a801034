import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { DatasetLink } from "@/app/DatasetLink";
import { Fp8Tab } from "@/app/Fp8Tab";
import { Overview } from "@/app/Overview";
import { RunTabs } from "@/app/RunTabs";
import type { Run } from "@/api/types";
import { Boundary } from "@/components/Boundary";
import { buttonClass } from "@/components/Button";
import { ForEditors } from "@/components/ForEditors";
import { CheckpointTable } from "@/features/checkpoints/CheckpointTable";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { searchOfTensor } from "@/features/fp8/view";
import { LivePill } from "@/features/metrics/LivePill";
import { Tiles } from "@/features/metrics/Tiles";
import { useLiveMetrics } from "@/features/metrics/useLiveMetrics";
import { clearedView, searchOf, viewOf, type ChartView, type ViewSearch } from "@/features/metrics/view";
import { ConfigurationTab } from "@/features/runs/ConfigurationTab";
import { EventList } from "@/features/runs/EventList";
import { LogTab } from "@/features/runs/LogTab";
import { RunActions } from "@/features/runs/RunActions";
import { searchOfLog } from "@/features/runs/logSearch";
import { RunHeader } from "@/features/runs/RunHeader";
import { runQuery } from "@/features/runs/queries";
import { isFinal } from "@/lib/runProgress";
import { isRunTab } from "@/lib/runTabs";
import { last, lastStep } from "@/lib/series";

export function RunPage() {
  const { runId } = useParams({ from: "/$team/runs/$runId/$tab" });
  return (
    <Boundary titled>
      <LiveRun key={runId} />
    </Boundary>
  );
}

function LiveRun() {
  const { team, runId, tab } = useParams({ from: "/$team/runs/$runId/$tab" });
  const search = useSearch({ from: "/$team/runs/$runId/$tab" });
  const navigate = useNavigate();
  const { data: stored } = useSuspenseQuery(runQuery(team, runId));
  const live = !isFinal(stored.state);
  const view = useView(search);
  const { metrics, shown, error, refetch, freshness } = useLiveMetrics(team, runId, live, view.window);
  const { data: checkpoints } = useQuery(checkpointsQuery(team, runId, live));
  const checkpointSteps = useMemo(
    () => (checkpoints ?? []).filter(({ kind }) => kind === "state").map(({ step }) => step),
    [checkpoints],
  );
  const run = withNewestStep(stored, metrics === undefined ? 0 : lastStep(metrics.columns));
  return (
    <>
      <RunHeader
        team={team}
        run={run}
        live={
          run.state === "running" && <LivePill freshness={freshness} stepSeconds={last(metrics?.columns["seconds"])} />
        }
        actions={
          <ForEditors>
            {!live && (
              <Link to="/$team/runs/new" params={{ team }} search={{ like: runId }} className={buttonClass()}>
                New run like it
              </Link>
            )}
            <RunActions team={team} run={run} onDeleted={() => void navigate({ to: "/$team/runs", params: { team } })} />
          </ForEditors>
        }
      />
      <Tiles run={run} columns={metrics?.columns ?? {}} />
      <RunTabs team={team} runId={runId} current={isRunTab(tab) ? tab : "overview"} fp8={run.spec.precision.kind === "fp8"} />
      <Boundary>{content()}</Boundary>
    </>
  );

  /** Changes what the address says of this page, and leaves the rest of it and the place on the page. */
  function change(next: Partial<typeof search>): void {
    void navigate({ to: ".", search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false });
  }

  function show(next: ChartView): void {
    change({ ...clearedView, ...searchOf(next) });
  }

  function content() {
    switch (tab) {
      case "fp8":
        return (
          <Fp8Tab
            team={team}
            run={run}
            metrics={metrics}
            shown={shown}
            error={error}
            onRetry={() => void refetch()}
            window={view.window}
            onWindow={(window) => {
              show({ ...view, window });
            }}
            wish={search}
            onChoose={(next) => {
              change(searchOfTensor(next));
            }}
          />
        );
      case "logs":
        return (
          <LogTab
            team={team}
            run={run}
            view={search}
            onView={(next) => {
              change(searchOfLog(next));
            }}
          />
        );
      case "events":
        return (
          <div className="panel p-4">
            <EventList team={team} run={runId} live={live} />
          </div>
        );
      case "checkpoints":
        return <CheckpointTable team={team} run={runId} live={live} />;
      case "configuration":
        return <ConfigurationTab run={run} dataset={<DatasetLink team={team} datasetId={run.spec.data.dataset} />} />;
      default:
        return (
          <Overview
            metrics={metrics}
            shown={shown}
            live={live}
            error={error}
            onRetry={() => void refetch()}
            checkpointSteps={checkpointSteps}
            view={view}
            onView={show}
            events={<EventList team={team} run={runId} live={live} limit={6} />}
          />
        );
    }
  }
}

/** The same view while the address says the same, so that nothing is drawn anew. */
function useView(search: ViewSearch): ChartView {
  const key = JSON.stringify(searchOf(viewOf(search)));
  return useMemo(() => viewOf(JSON.parse(key) as ViewSearch), [key]);
}

/** The stream runs ahead of the polled summary. */
function withNewestStep(run: Run, step: number): Run {
  return { ...run, summary: { ...run.summary, step: Math.max(step, run.summary.step) } };
}
