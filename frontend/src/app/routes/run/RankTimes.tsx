import { Link } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { RankHeatMap } from "@/features/metrics/timing/RankHeatMap";
import type { StepPart } from "@/features/metrics/timing/rankTimes";
import { lastStep } from "@/lib/charts/series";
import type { StepWindow } from "@/lib/charts/stepWindow";

interface Props {
  team: string;
  run: Run;
  live: boolean;
  window: StepWindow | null;
  metrics: LiveMetrics | undefined;
  part: StepPart;
  onPart: (part: StepPart) => void;
}

/** The heat map of ranks with links to their logs, for runs with several ranks that have trained. */
export function RankTimes({ team, run, live, window, metrics, part, onPart }: Props) {
  const { slots_per_node: slots } = run.spec.resources;
  const nodes = run.attempt_nodes.length || run.spec.resources.nodes;
  const newest = lastStep(metrics?.columns ?? {});
  if (nodes * slots === 1 || newest === 0) return null;
  return (
    <RankHeatMap
      team={team}
      run={run.id}
      live={live}
      window={window}
      newest={newest}
      part={part}
      onPart={onPart}
      nodeOf={(rank) => (nodes === 1 ? undefined : run.attempt_nodes[Math.floor(rank / slots)])}
      logOf={(rank) => (
        <Link
          to="/$team/runs/$runId/$tab"
          params={{ team, runId: run.id, tab: "logs" }}
          search={{ attempt: run.attempt, file: `rank-${rank}.log` }}
          className="text-accent underline"
        >
          Log of rank {rank}
        </Link>
      )}
    />
  );
}
