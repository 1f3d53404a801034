import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useRouteContext } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Run } from "@/api/types";
import { DatasetLink } from "@/app/routes/run/DatasetLink";
import { RunTabContent } from "@/app/routes/run/RunTabContent";
import { RunTabs } from "@/app/routes/run/RunTabs";
import { isRunTab, type RunTab } from "@/app/routes/run/tabNames";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { ErrorNote } from "@/components/ErrorNote";
import { ForEditors } from "@/components/ForEditors";
import { newestState } from "@/features/checkpoints/newestState";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { LivePill } from "@/features/metrics/live/LivePill";
import { useLiveMetrics } from "@/features/metrics/live/useLiveMetrics";
import { SummaryTiles } from "@/features/metrics/summary/SummaryTiles";
import { StartForecast } from "@/features/queue/StartForecast";
import { RunActions } from "@/features/runs/actions/RunActions";
import { RunBanner } from "@/features/runs/detail/RunBanner";
import { RunHeader } from "@/features/runs/detail/RunHeader";
import { useRefreshAtEnd } from "@/features/runs/detail/useRefreshAtEnd";
import { runQuery } from "@/features/runs/queries";
import { lastStep, lastValue } from "@/lib/charts/series";
import { isFinal } from "@/lib/runs/runProgress";

export function RunPage() {
  const { runId } = useParams({ from: "/$team/runs/$runId/$tab" });
  return (
    <AsyncBoundary titled notFoundTitle="Run not found">
      <LiveRunPage key={runId} />
    </AsyncBoundary>
  );
}

function LiveRunPage() {
  const { team, runId, tab } = useParams({ from: "/$team/runs/$runId/$tab" });
  const navigate = useNavigate();
  const { data: polledRun } = useSuspenseQuery(runQuery(team, runId));
  const live = !isFinal(polledRun.state);
  useRefreshAtEnd(team, runId, live);
  const canSeeNodes = useRouteContext({ from: "/$team", select: ({ me }) => me.site_admin });
  const [actionError, setActionError] = useState<Error | null>(null);
  const { metrics, error, refetch, freshness } = useLiveMetrics(team, runId, live);
  const { data: checkpoints } = useQuery(checkpointsQuery(team, runId, live));
  const checkpointSteps = useMemo(
    () => (checkpoints ?? []).filter(({ kind }) => kind === "state").map(({ step }) => step),
    [checkpoints],
  );
  const newestStep = useMemo(() => newestState(checkpoints), [checkpoints]);
  const newest = metrics === undefined ? 0 : lastStep(metrics.columns);
  const run = useMemo(() => withNewestStep(polledRun, newest), [polledRun, newest]);
  // Steps arrive several times a second and do not change these.
  const actions = useMemo(
    () => (
      <ForEditors>
        <RunActions
          team={team}
          run={polledRun}
          onRefused={setActionError}
          onDeleted={() => void navigate({ to: "/$team/runs", params: { team } })}
        />
      </ForEditors>
    ),
    [team, polledRun, navigate],
  );
  const banner = useMemo(
    () => (
      <RunBanner
        team={team}
        run={polledRun}
        canSeeNodes={canSeeNodes}
        newestState={newestStep}
        expectedStart={polledRun.state === "queued" && <StartForecast team={team} runId={polledRun.id} />}
      />
    ),
    [team, polledRun, canSeeNodes, newestStep],
  );
  // After a success, the banner is only a summary, so it belongs on the overview.
  const isSummary = polledRun.state === "succeeded";
  const notes = useMemo(
    () => (
      <>
        {actionError !== null && (
          <div className="mb-4">
            <ErrorNote error={actionError} />
          </div>
        )}
        {!isSummary && banner}
      </>
    ),
    [actionError, banner, isSummary],
  );
  const isOverview = !isRunTab(tab) || tab === "overview";
  const { kind } = polledRun.spec.precision;
  const prompts = polledRun.spec.validation.prompts.length;
  const hidden = useMemo((): RunTab[] => [...(kind === "fp8" ? [] : ["fp8" as const]), ...(prompts > 0 ? [] : ["samples" as const])], [kind, prompts]);
  const dataset = useMemo(() => <DatasetLink team={team} datasetId={polledRun.spec.data.dataset} />, [team, polledRun.spec.data.dataset]);
  return (
    <>
      <RunHeader
        team={team}
        run={run}
        canSeeNodes={canSeeNodes}
        live={
          run.state === "running" && <LivePill freshness={freshness} stepSeconds={lastValue(metrics?.columns["seconds"])} />
        }
        actions={actions}
        banner={notes}
        dataset={dataset}
      />
      <RunTabs team={team} runId={runId} current={isRunTab(tab) ? tab : "overview"} hidden={hidden} />
      {isOverview && (
        <>
          {isSummary && banner}
          {run.summary.step > 0 && <SummaryTiles run={run} columns={metrics?.columns ?? {}} />}
        </>
      )}
      <AsyncBoundary>
        <RunTabContent run={run} live={live} metrics={metrics} error={error} refetch={refetch} checkpointSteps={checkpointSteps} />
      </AsyncBoundary>
    </>
  );
}

/** The stream is ahead of the polled summary. */
function withNewestStep(run: Run, step: number): Run {
  return { ...run, summary: { ...run.summary, step: Math.max(step, run.summary.step) } };
}
