import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { Sparkline } from "@/components/charts/Sparkline";
import { ShortId } from "@/components/ShortId";
import { StatePill } from "@/components/StatePill";
import { rowClass } from "@/components/Table";
import { TagChip } from "@/components/TagChip";
import { Td } from "@/components/Td";
import { Time } from "@/components/Time";
import { useDatasetName } from "@/features/runs/list/datasetNames";
import { COLUMN_STYLES, type RunColumn } from "@/features/runs/list/runColumns";
import { capitalize, decimal, fullTime } from "@/lib/format";
import { hasMetrics, progressText, showsSentence, timeText } from "@/lib/runs/runProgress";

interface Props {
  team: string;
  run: Run;
  columns: readonly RunColumn[];
  now: number;
  /** Whether no other listed run has its name. */
  hasUniqueName?: boolean;
  /** Its position in the full list, from 1, if only a part is rendered. */
  index?: number;
  /** The selection checkbox. */
  select?: ReactNode;
  /** Whether runs are being selected: phones show the checkbox only then. */
  isSelecting?: boolean;
  isSelected?: boolean;
  onTag?: (tag: string) => void;
}

/** The height of all rows, because any may have two lines: a name and a sentence, or a sentence that wraps. */
const TWO_LINES = "tablet:h-[38px] tablet:py-0";

/** One run. Phones show its state, its name over its sentence or progress, and its loss over its time. */
export function RunRow({ team, run, columns, now, hasUniqueName = true, index, select, isSelecting = false, isSelected = false, onTag }: Props) {
  const metricColumns = columns.filter((column) => COLUMN_STYLES[column].isMetric);
  const replacesMetrics = metricColumns.length > 0 && !hasMetrics(run);
  const isBelowName = showsSentence(run) && !replacesMetrics;
  return (
    <tr
      className={`relative ${rowClass} ${isSelected ? "bg-raised" : ""}`}
      data-row={run.id}
      aria-rowindex={index === undefined ? undefined : index + 1}
    >
      {select !== undefined && <Td className={isSelecting ? "" : "max-tablet:hidden"}>{select}</Td>}
      <Td className="max-tablet:align-top">
        <StatePill state={run.state} suspectSeconds={run.suspect_seconds} />
      </Td>
      <Td className={TWO_LINES}>
        <Link
          to="/$team/runs/$runId/$tab"
          params={{ team, runId: run.id, tab: "overview" }}
          className={`block truncate font-medium after:absolute after:inset-0 ${isBelowName ? "tablet:leading-[16px]" : ""}`}
          title={run.name}
        >
          {run.name}
          {!hasUniqueName && <ShortId id={run.id} />}
        </Link>
        {isBelowName && <SentenceBelowName text={capitalize(run.sentence)} />}
        <PhoneText text={showsSentence(run) ? capitalize(run.sentence) : progressText(run)} />
      </Td>
      {columns.map((column) => {
        if (!replacesMetrics || COLUMN_STYLES[column].isMetric !== true) {
          return <Cell key={column} run={run} column={column} now={now} onTag={onTag} />;
        }
        return column === metricColumns[0] && <Sentence key={column} text={capitalize(run.sentence)} columns={metricColumns.length} />;
      })}
      <Td className="text-right max-tablet:align-top tablet:hidden">
        <span className="block">{hasMetrics(run) && decimal(run.summary.values["loss"] ?? NaN)}</span>
        <span className="block truncate text-small text-soft">{timeText(run, now)}</span>
      </Td>
    </tr>
  );
}

/** Always as high as two lines, because all rows have the same height. */
function PhoneText({ text }: { text: string }) {
  return (
    <span className="line-clamp-2 h-8 text-small leading-[16px] text-soft [font-variant-numeric:normal] tablet:hidden" title={text}>
      {text}
    </span>
  );
}

interface CellProps {
  run: Run;
  column: RunColumn;
  now: number;
  onTag: ((tag: string) => void) | undefined;
}

function Cell({ run, column, now, onTag }: CellProps) {
  const { alignRight, text } = COLUMN_STYLES[column];
  const className = `truncate max-tablet:hidden ${alignRight === true ? "text-right" : ""} ${column === "by" || column === "nodes" ? "text-soft" : ""}`;
  if (text !== undefined) return <Td className={className} title={column === "nodes" ? text(run) : undefined}>{text(run)}</Td>;
  if (column === "spark") {
    return (
      <Td className={className}>
        <Sparkline values={run.summary.spark} label={`Loss of ${run.name} so far`} />
      </Td>
    );
  }
  if (column === "dataset") return <DatasetCell id={run.spec.data.dataset} className={className} />;
  if (column === "created") {
    return (
      <Td className={className}>
        <Time at={run.created} />
      </Td>
    );
  }
  if (column === "tags") return <Td className={className}><Tags run={run} onTag={onTag} /></Td>;
  return (
    <Td className={className} title={fullTime(run.created)}>
      {timeText(run, now)}
    </Td>
  );
}

function DatasetCell({ id, className }: { id: string; className: string }) {
  const name = useDatasetName(id);
  return (
    <Td className={className} title={name}>
      {name}
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
          {...(onTag === undefined ? {} : { action: "filter by this tag", onPress: () => { onTag(tag); } })}
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

function SentenceBelowName({ text }: { text: string }) {
  return (
    <span className="block truncate text-small text-soft [font-variant-numeric:normal] max-tablet:hidden" title={text}>
      {text}
    </span>
  );
}

/** Replaces the metrics. */
function Sentence({ text, columns }: { text: string; columns: number }) {
  return (
    <Td colSpan={columns} className="text-soft max-tablet:hidden">
      <span className="line-clamp-2 text-left text-small leading-4 [font-variant-numeric:normal]" title={text}>
        {text}
      </span>
    </Td>
  );
}
