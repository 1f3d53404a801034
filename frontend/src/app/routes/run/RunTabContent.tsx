import { useNavigate, useParams } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { DatasetLink } from "@/app/routes/run/DatasetLink";
import { Fp8Tab } from "@/app/routes/run/Fp8Tab";
import { OverviewTab } from "@/app/routes/run/OverviewTab";
import { RankTimes } from "@/app/routes/run/RankTimes";
import { useRunSearch } from "@/app/routes/run/useRunSearch";
import { RunCheckpointList } from "@/features/checkpoints/RunCheckpointList";
import { searchOfTensor } from "@/features/fp8/tensorSearch";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { ConfigurationTab } from "@/features/runs/detail/ConfigurationTab";
import { EventsTab } from "@/features/runs/detail/EventsTab";
import { EventList } from "@/features/runs/detail/EventList";
import { hashOfLine, searchOfLog } from "@/features/runs/log/logSearch";
import { LogTab } from "@/features/runs/log/LogTab";
import { SamplesTab } from "@/features/runs/samples/SamplesTab";

interface Props {
  run: Run;
  live: boolean;
  metrics: LiveMetrics | undefined;
  error: Error | null;
  refetch: () => Promise<unknown>;
  checkpointSteps: readonly number[];
}

/**
 * The content of the current tab. Separate from the page's header, which does not re-render when the address
 * changes.
 */
export function RunTabContent({ run, live, metrics, error, refetch, checkpointSteps }: Props) {
  const { team, runId, tab } = useParams({ from: "/$team/runs/$runId/$tab" });
  const { search, line, view, updateSearch, updateView } = useRunSearch();
  const navigate = useNavigate();
  const retry = () => void refetch();
  switch (tab) {
    case "fp8":
      return (
        <Fp8Tab
          team={team}
          run={run}
          metrics={metrics}
          error={error}
          onRetry={retry}
          window={view.window}
          onWindow={(window) => {
            updateView({ window });
          }}
          tensorSearch={search}
          onChoose={(next) => {
            updateSearch(searchOfTensor(next));
          }}
        />
      );
    case "samples":
      return (
        <SamplesTab
          team={team}
          run={run}
          live={live}
          losses={metrics?.columns["validation_loss"]}
          view={search}
          onView={updateSearch}
        />
      );
    case "logs":
      return (
        <LogTab
          team={team}
          run={run}
          view={line === undefined ? search : { ...search, line }}
          onView={(next) => {
            updateSearch(searchOfLog(next), hashOfLine(next.line));
          }}
        />
      );
    case "events":
      return <EventsTab team={team} run={runId} live={live} view={search} onView={updateSearch} />;
    case "checkpoints":
      return (
        <RunCheckpointList
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
        <OverviewTab
          team={team}
          run={run}
          metrics={metrics}
          live={live}
          error={error}
          onRetry={retry}
          checkpointSteps={checkpointSteps}
          view={view}
          onView={updateView}
          events={<EventList team={team} run={runId} live={live} limit={6} />}
          ranks={(window) => (
            <RankTimes
              team={team}
              run={run}
              live={live}
              window={window}
              metrics={metrics}
              part={search.phase ?? "forward"}
              onPart={(phase) => {
                updateSearch({ phase });
              }}
            />
          )}
        />
      );
  }
}
