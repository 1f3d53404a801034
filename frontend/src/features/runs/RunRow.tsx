import { Link } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { Sparkline } from "@/components/Sparkline";
import { StatePill } from "@/components/StatePill";
import { rowClass } from "@/components/Table";
import { Td } from "@/components/Td";
import { decimal, fullTime, percent, rate } from "@/lib/format";
import { showsNumbers, timeText } from "@/lib/runProgress";

interface Props {
  team: string;
  run: Run;
  now: number;
}

export function RunRow({ team, run, now }: Props) {
  return (
    <tr className={`relative ${rowClass}`}>
      <Td className="w-32 max-tablet:w-24">
        <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
      </Td>
      <Td className="max-w-72 min-w-32 max-tablet:max-w-28 max-tablet:min-w-20">
        <Link
          to="/$team/runs/$runId/$tab"
          params={{ team, runId: run.id, tab: "overview" }}
          className="block truncate font-medium after:absolute after:inset-0"
          title={run.name}
        >
          {run.name}
        </Link>
      </Td>
      {showsNumbers(run) ? <Numbers run={run} /> : <Sentence text={run.sentence} />}
      <Td className="text-right whitespace-nowrap" title={fullTime(run.created)}>
        {timeText(run, now)}
      </Td>
      <Td className="max-w-32 truncate text-soft max-tablet:hidden">{run.created_by ?? "–"}</Td>
    </tr>
  );
}

function Numbers({ run }: { run: Run }) {
  const { mfu, loss, tokens_per_second: speed } = run.summary.values;
  return (
    <>
      <Td className="text-right whitespace-nowrap max-tablet:hidden">{mfu === undefined ? "–" : `${percent(mfu)} %`}</Td>
      <Td className="text-right">{loss === undefined ? "–" : decimal(loss)}</Td>
      <Td className="max-tablet:hidden">
        <Sparkline values={run.summary.spark} label={`Loss of ${run.name} so far`} />
      </Td>
      <Td className="text-right max-tablet:hidden">{speed === undefined ? "–" : rate(speed)}</Td>
    </>
  );
}

/** In the place of the numbers: of all four, or on a phone of the one that it has room for. */
function Sentence({ text }: { text: string }) {
  const words = (
    <span className="block truncate [font-variant-numeric:normal]" title={text}>
      {text}
    </span>
  );
  return (
    <>
      <Td colSpan={4} className="max-w-0 text-soft max-tablet:hidden">
        {words}
      </Td>
      <Td className="max-w-28 text-soft tablet:hidden">{words}</Td>
    </>
  );
}
