import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { Sparkline } from "@/components/Sparkline";
import { StatePill } from "@/components/StatePill";
import { rowClass } from "@/components/Table";
import { TagChip } from "@/components/TagChip";
import { Td } from "@/components/Td";
import { Time } from "@/components/Time";
import { COLUMN_LOOKS, type RunColumn } from "@/features/runs/runColumns";
import { decimal, fullTime } from "@/lib/format";
import { showsNumbers, timeText } from "@/lib/runProgress";

interface Props {
  team: string;
  run: Run;
  columns: readonly RunColumn[];
  now: number;
  /** Its place in the whole list, from 1, where only a part of it is in the page. */
  index?: number;
  /** The control that chooses it. */
  select?: ReactNode;
  /** Whether runs are being chosen: only then phones have room for that, in the place of the loss. */
  choosing?: boolean;
  chosen?: boolean;
  onTag?: (tag: string) => void;
}

/** A run in a line. Phones have room for its state, name above sentence, loss and time. */
export function RunRow({ team, run, columns, now, index, select, choosing = false, chosen = false, onTag }: Props) {
  const numbers = columns.filter((one) => COLUMN_LOOKS[one].number);
  const told = numbers.length > 0 && !showsNumbers(run);
  return (
    <tr
      className={`relative ${rowClass} ${chosen ? "bg-raised" : ""}`}
      data-row={run.id}
      aria-rowindex={index === undefined ? undefined : index + 1}
    >
      {select !== undefined && <Td className={choosing ? "" : "max-tablet:hidden"}>{select}</Td>}
      <Td>
        <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
      </Td>
      <Td>
        <Link
          to="/$team/runs/$runId/$tab"
          params={{ team, runId: run.id, tab: "overview" }}
          className="block truncate font-medium after:absolute after:inset-0"
          title={run.name}
        >
          {run.name}
        </Link>
        <span className="block truncate text-small text-soft [font-variant-numeric:normal] tablet:hidden">{run.sentence}</span>
      </Td>
      {columns.map((column) => {
        if (!told || COLUMN_LOOKS[column].number !== true) {
          return <Cell key={column} run={run} column={column} now={now} onTag={onTag} />;
        }
        return column === numbers[0] && <Sentence key={column} text={run.sentence} columns={numbers.length} />;
      })}
      <Td className={`text-right ${choosing ? "hidden" : "tablet:hidden"}`}>
        {showsNumbers(run) ? decimal(run.summary.values["loss"] ?? NaN) : "–"}
      </Td>
      <Td className="text-right text-small tablet:hidden">{timeText(run, now)}</Td>
    </tr>
  );
}

interface CellProps {
  run: Run;
  column: RunColumn;
  now: number;
  onTag: ((tag: string) => void) | undefined;
}

function Cell({ run, column, now, onTag }: CellProps) {
  const { right, text } = COLUMN_LOOKS[column];
  const look = `truncate max-tablet:hidden ${right === true ? "text-right" : ""} ${column === "by" || column === "nodes" ? "text-soft" : ""}`;
  if (text !== undefined) return <Td className={look} title={column === "nodes" ? text(run) : undefined}>{text(run)}</Td>;
  if (column === "spark") {
    return (
      <Td className={look}>
        <Sparkline values={run.summary.spark} label={`Loss of ${run.name} so far`} />
      </Td>
    );
  }
  if (column === "created") {
    return (
      <Td className={look}>
        <Time at={run.created} />
      </Td>
    );
  }
  if (column === "tags") return <Td className={look}><Tags run={run} onTag={onTag} /></Td>;
  return (
    <Td className={look} title={fullTime(run.created)}>
      {timeText(run, now)}
    </Td>
  );
}

const TAGS_SHOWN = 2;

function Tags({ run, onTag }: Pick<CellProps, "run" | "onTag">) {
  const more = run.tags.slice(TAGS_SHOWN);
  return (
    <span className="flex items-center gap-1">
      {run.tags.slice(0, TAGS_SHOWN).map((tag) => (
        <TagChip
          key={tag}
          name={tag}
          {...(onTag === undefined ? {} : { verb: "filter by it", onPress: () => { onTag(tag); } })}
        />
      ))}
      {more.length > 0 && (
        <span className="text-small text-soft" title={more.join(", ")}>
          +{more.length}
        </span>
      )}
    </span>
  );
}

/** In the place of the numbers. */
function Sentence({ text, columns }: { text: string; columns: number }) {
  return (
    <Td colSpan={columns} className="text-soft max-tablet:hidden">
      <span className="block truncate text-left [font-variant-numeric:normal]" title={text}>
        {text}
      </span>
    </Td>
  );
}
