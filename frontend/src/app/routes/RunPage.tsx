import { useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useLocation, useMatch, useNavigate, useParams, useRouteContext, useRouter, useSearch } from "@tanstack/react-router";
import { DatasetLink } from "@/app/DatasetLink";
import { Fp8Tab } from "@/app/Fp8Tab";
import { Overview } from "@/app/Overview";
import { RunTabs } from "@/app/RunTabs";
import type { Run } from "@/api/types";
import { Boundary } from "@/components/Boundary";
import { ErrorNote } from "@/components/ErrorNote";
import { ForEditors } from "@/components/ForEditors";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { RunCheckpoints } from "@/features/checkpoints/RunCheckpoints";
import { searchOfTensor } from "@/features/fp8/view";
import { LivePill } from "@/features/metrics/LivePill";
import type { LiveMetrics } from "@/features/metrics/queries";
import { RankMap } from "@/features/metrics/RankMap";
import { Tiles } from "@/features/metrics/Tiles";
import { useLiveMetrics } from "@/features/metrics/useLiveMetrics";
import { clearedView, searchOf, viewOf, type ChartView, type ViewSearch } from "@/features/metrics/view";
import { ConfigurationTab } from "@/features/runs/ConfigurationTab";
import { EventList } from "@/features/runs/EventList";
import { LogTab } from "@/features/runs/LogTab";
import { RunActions } from "@/features/runs/RunActions";
import { hashOfLine, lineOfHash, searchOfLog } from "@/features/runs/logSearch";
import { RunBanner } from "@/features/runs/RunBanner";
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
  const navigate = useNavigate();
  const { data: stored } = useSuspenseQuery(runQuery(team, runId));
  const live = !isFinal(stored.state);
  const seesNodes = useRouteContext({ from: "/$team", select: ({ me }) => me.site_admin });
  const [refusal, setRefusal] = useState<Error | null>(null);
  const { metrics, error, refetch, freshness } = useLiveMetrics(team, runId, live);
  const { data: checkpoints } = useQuery(checkpointsQuery(team, runId, live));
  const checkpointSteps = useMemo(
    () => (checkpoints ?? []).filter(({ kind }) => kind === "state").map(({ step }) => step),
    [checkpoints],
  );
  const newest = metrics === undefined ? 0 : lastStep(metrics.columns);
  const run = useMemo(() => withNewestStep(stored, newest), [stored, newest]);
  // Steps come several times a second, and are nothing to these.
  const actions = useMemo(
    () => (
      <ForEditors>
        <RunActions
          team={team}
          run={stored}
          onRefused={setRefusal}
          onDeleted={() => void navigate({ to: "/$team/runs", params: { team } })}
        />
      </ForEditors>
    ),
    [team, stored, navigate],
  );
  const banner = useMemo(
    () => (
      <>
        {refusal !== null && (
          <div className="mb-4">
            <ErrorNote error={refusal} />
          </div>
        )}
        <RunBanner team={team} run={stored} seesNodes={seesNodes} />
      </>
    ),
    [team, stored, refusal, seesNodes],
  );
  return (
    <>
      <RunHeader
        team={team}
        run={run}
        live={
          run.state === "running" && <LivePill freshness={freshness} stepSeconds={last(metrics?.columns["seconds"])} />
        }
        actions={actions}
        banner={banner}
      />
      <Tiles run={run} columns={metrics?.columns ?? {}} />
      <RunTabs team={team} runId={runId} current={isRunTab(tab) ? tab : "overview"} fp8={run.spec.precision.kind === "fp8"} />
      <Boundary>
        <RunContent run={run} live={live} metrics={metrics} error={error} refetch={refetch} checkpointSteps={checkpointSteps} />
      </Boundary>
    </>
  );
}

interface ContentProps {
  run: Run;
  live: boolean;
  metrics: LiveMetrics | undefined;
  error: Error | null;
  refetch: () => Promise<unknown>;
  checkpointSteps: readonly number[];
}

/** What the tab shows. Apart from the head of the page, which stays as it is when the address follows what is chosen here. */
function RunContent({ run, live, metrics, error, refetch, checkpointSteps }: ContentProps) {
  const { team, runId, tab } = useParams({ from: "/$team/runs/$runId/$tab" });
  const search = useSearch({ from: "/$team/runs/$runId/$tab" });
  const line = useLocation({ select: ({ hash }) => lineOfHash(hash) });
  const pathname = useMatch({ from: "/$team/runs/$runId/$tab", select: (match) => match.pathname });
  const router = useRouter();
  const navigate = useNavigate();
  const view = useView(search);
  return content();

  /** Changes what the address says of this tab, and leaves the rest of it. Who leaves is let go. */
  function change(next: Partial<typeof search>, hash: string | true = true): void {
    if (here() === pathname) say((old) => ({ ...old, ...next }), hash);
  }

  /** Tabs share a view: what is chosen just before one is left holds on the next. */
  function show(next: Partial<ChartView>): void {
    if (folderOf(here()) !== folderOf(pathname)) return;
    say((old) => ({ ...old, ...clearedView, ...searchOf({ ...viewOf(old), ...next }) }));
  }

  /** The newest address, which may not be drawn yet; a slash at its end is nothing. */
  function here(): string {
    return router.latestLocation.pathname.replace(/\/$/, "");
  }

  function say(next: (old: typeof search) => typeof search, hash: string | true = true): void {
    void navigate({ to: ".", search: next, hash, replace: true, resetScroll: false });
  }

  function content() {
    switch (tab) {
      case "fp8":
        return (
          <Fp8Tab
            team={team}
            run={run}
            metrics={metrics}
            error={error}
            onRetry={() => void refetch()}
            window={view.window}
            onWindow={(window) => {
              show({ window });
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
            view={line === undefined ? search : { ...search, line }}
            onView={(next) => {
              change(searchOfLog(next), hashOfLine(next.line));
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
        return (
          <RunCheckpoints
            team={team}
            run={runId}
            live={live}
            onFork={({ id }) => void navigate({ to: "/$team/runs/new", params: { team }, search: { fork: runId, checkpoint: id } })}
          />
        );
      case "configuration":
        return <ConfigurationTab team={team} run={run} dataset={<DatasetLink team={team} datasetId={run.spec.data.dataset} />} />;
      default:
        return (
          <Overview
            team={team}
            run={runId}
            metrics={metrics}
            live={live}
            error={error}
            onRetry={() => void refetch()}
            checkpointSteps={checkpointSteps}
            view={view}
            onView={show}
            events={<EventList team={team} run={runId} live={live} limit={6} />}
            ranks={(window) =>
              ranksOf(run) > 1 && (
                <RankMap
                  team={team}
                  run={runId}
                  live={live}
                  window={window}
                  newest={lastStep(metrics?.columns ?? {})}
                  phase={search.phase ?? "forward"}
                  onPhase={(phase) => {
                    change({ phase });
                  }}
                  logOf={(rank) => (
                    <Link
                      to="/$team/runs/$runId/$tab"
                      params={{ team, runId, tab: "logs" }}
                      search={{ attempt: run.attempt, file: `rank-${rank}.log` }}
                      className="text-accent underline"
                    >
                      Log of rank {rank}
                    </Link>
                  )}
                />
              )
            }
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

function folderOf(pathname: string): string {
  return pathname.slice(0, pathname.lastIndexOf("/"));
}

function ranksOf({ spec: { resources } }: Run): number {
  return resources.nodes * resources.slots_per_node;
}

/** The stream runs ahead of the polled summary. */
function withNewestStep(run: Run, step: number): Run {
  return { ...run, summary: { ...run.summary, step: Math.max(step, run.summary.step) } };
}
