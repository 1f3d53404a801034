import { Link } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { MiniCurve } from "@/components/charts/MiniCurve";
import { Meter } from "@/components/Meter";
import { ShortId } from "@/components/ShortId";
import { StatePill } from "@/components/StatePill";
import { count, decimal, percent, rate } from "@/lib/format";
import { timeSentence } from "@/lib/runs/runProgress";

interface Props {
  team: string;
  run: Run;
  now: number;
  /** Whether no other run on the page has its name. */
  hasUniqueName: boolean;
}

/** A run on a node: its curve so far, its progress and speed. */
export function RunCard({ team, run, now, hasUniqueName }: Props) {
  const { summary, spec } = run;
  const { loss, mfu, tokens_per_second: speed } = summary.values;
  const facts = [mfu === undefined ? "" : `${percent(mfu)} % MFU`, speed === undefined ? "" : `${rate(speed)} tokens/s`].filter(Boolean);
  return (
    <li className="panel relative flex min-w-0 flex-col gap-2 p-4 hover:bg-raised">
      <div className="flex items-baseline gap-3">
        <Link
          to="/$team/runs/$runId/$tab"
          params={{ team, runId: run.id, tab: "overview" }}
          className="min-w-0 flex-1 truncate font-semibold after:absolute after:inset-0"
          title={run.name}
        >
          {run.name}
          {!hasUniqueName && <ShortId id={run.id} />}
        </Link>
        <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
      </div>
      {loss === undefined ? (
        <p className="min-h-22 text-small text-soft first-letter:uppercase">{run.sentence}</p>
      ) : (
        <>
          <p className="flex items-baseline gap-2">
            <span className="text-small text-soft">loss</span>
            <span className="text-big font-semibold">{decimal(loss)}</span>
            <span className="ml-auto text-right text-small text-soft">{facts.join(" · ")}</span>
          </p>
          <MiniCurve values={summary.spark} label={`Loss of ${run.name} so far, now ${decimal(loss)}`} />
        </>
      )}
      <Meter fraction={summary.step / spec.schedule.steps} label={`Progress of ${run.name}`} className="w-full" />
      <p className="flex justify-between gap-3 text-small text-soft">
        <span>
          step {count(summary.step)} of {count(spec.schedule.steps)}
        </span>
        <span className="whitespace-nowrap">{timeSentence(run, now)}</span>
      </p>
    </li>
  );
}
