import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { Meter } from "@/components/Meter";
import { StatePill } from "@/components/StatePill";
import { TitleRow } from "@/components/TitleRow";
import { RunFacts } from "@/features/runs/detail/RunFacts";
import { RunNotes } from "@/features/runs/detail/RunNotes";
import { count } from "@/lib/format";
import { isFinal, isFinishing, timeSentence } from "@/lib/runs/runProgress";
import { useNow } from "@/lib/hooks/useNow";

interface Props {
  team: string;
  run: Run;
  /** Only site admins can see nodes. */
  canSeeNodes: boolean;
  /** How fresh the metrics are. */
  live: ReactNode;
  actions: ReactNode;
  /** What the user should know or do now. */
  banner: ReactNode;
  /** A link to its data. */
  dataset: ReactNode;
}

/** A run's name, state, progress and actions. */
export function RunHeader({ team, run, canSeeNodes, live, actions, banner, dataset }: Props) {
  const now = useNow();
  const steps = run.spec.schedule.steps;
  const step = run.summary.step;
  const isRunning = run.state === "running" || run.state === "completing";
  const final = isFinal(run.state);
  return (
    <>
      <TitleRow
        title={run.name}
        tabTitle={run.state === "running" ? `${count(step)}/${count(steps)} ${run.name}` : undefined}
        parent={
          <Link to="/$team/runs" params={{ team }} className="hover:text-accent">
            Runs
          </Link>
        }
        actions={actions}
      >
        <span className="flex items-center gap-2">
          <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
          {!final && live}
        </span>
        {(isRunning || step > 0) && (
          <>
            {!isFinishing(run) && (
              <span className="whitespace-nowrap">
                {run.state === "paused" && "at "}step {count(step)} <span className="text-soft">of {count(steps)}</span>
              </span>
            )}
            {isRunning && <Meter fraction={steps === 0 ? 0 : step / steps} label="Steps done" />}
          </>
        )}
        <span className={`whitespace-nowrap ${isRunning ? "" : "text-soft"}`}>
          {timeSentence(run, now)}
        </span>
      </TitleRow>
      <RunFacts team={team} run={run} canSeeNodes={canSeeNodes} dataset={dataset} />
      {banner}
      <RunNotes team={team} run={run} />
    </>
  );
}
