import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { Meter } from "@/components/Meter";
import { StatePill } from "@/components/StatePill";
import { TitleRow } from "@/components/TitleRow";
import { RunFacts } from "@/features/runs/RunFacts";
import { count } from "@/lib/format";
import { isFinal, timeSentence } from "@/lib/runProgress";
import { useNow } from "@/lib/useNow";

interface Props {
  team: string;
  run: Run;
  /** How fresh the numbers are. */
  live: ReactNode;
  actions: ReactNode;
  /** What a person should know or do now. */
  banner: ReactNode;
}

/** A run's name, its state, how far it is, and what can be done about it. */
export function RunHeader({ team, run, live, actions, banner }: Props) {
  const now = useNow();
  const steps = run.spec.schedule.steps;
  const step = run.summary.step;
  const moving = run.state === "running" || run.state === "completing";
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
        <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
        {(moving || (final && step > 0)) && (
          <>
            <span className="whitespace-nowrap">
              step {count(step)} <span className="text-soft">of {count(steps)}</span>
            </span>
            {moving && <Meter fraction={steps === 0 ? 0 : step / steps} label="Steps done" />}
          </>
        )}
        <span className={`whitespace-nowrap ${moving ? "" : "text-soft"}`}>
          {timeSentence(run, now)}
        </span>
        {!final && live}
      </TitleRow>
      {banner}
      <RunFacts team={team} run={run} />
    </>
  );
}
