import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { ShortId } from "@/components/ShortId";
import { StatePill } from "@/components/StatePill";
import { Time } from "@/components/Time";
import { duration, secondsBetween } from "@/lib/format";
import { isFinal, secondsRun } from "@/lib/runs/runProgress";

interface Props {
  team: string;
  /** Name of the list, for screen readers. */
  label: string;
  runs: readonly Run[];
  now: number;
  /** The ids of runs whose name another run on the page has too. */
  sharedNames: ReadonlySet<string>;
  /** What can be done about a run. */
  actions?: (run: Run) => ReactNode;
}

/** Runs that do not train: each with the sentence that says why, and what can be done. */
export function RunLines({ team, label, runs, now, sharedNames, actions }: Props) {
  return (
    <ul aria-label={label} className="panel divide-y">
      {runs.map((run) => (
        <li key={run.id} className="grid grid-cols-[7rem_minmax(0,1fr)_auto] items-baseline gap-x-3 gap-y-0.5 px-4 py-2 max-tablet:grid-cols-[minmax(0,1fr)_auto]">
          <span className="max-tablet:col-start-1 max-tablet:row-start-2">
            <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
          </span>
          <div className="flex min-w-0 flex-col max-tablet:col-start-1 max-tablet:row-start-1">
            <Link to="/$team/runs/$runId/$tab" params={{ team, runId: run.id, tab: "overview" }} className="truncate font-medium hover:text-accent" title={run.name}>
              {run.name}
              {sharedNames.has(run.id) && <ShortId id={run.id} />}
            </Link>
          </div>
          <span className="text-right text-small whitespace-nowrap text-soft">{timeOf(run, now)}</span>
          <div className="col-span-2 col-start-2 flex flex-wrap items-baseline gap-x-4 text-small max-tablet:col-start-1">
            <p className="min-w-0 break-words text-soft first-letter:uppercase">{run.sentence}</p>
            {actions?.(run)}
          </div>
        </li>
      ))}
    </ul>
  );
}

function timeOf(run: Run, now: number): ReactNode {
  if (isFinal(run.state) && run.ended != null) {
    return (
      <>
        {run.started != null && `${duration(secondsRun(run) ?? secondsBetween(run.started, run.ended))}, `}ended <Time at={run.ended} />
      </>
    );
  }
  return `for ${duration(secondsBetween(run.paused ?? run.created, now))}`;
}
