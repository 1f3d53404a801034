import { useQuery } from "@tanstack/react-query";
import { useMemo, useState, type ReactNode } from "react";
import { ErrorState } from "@/components/ErrorState";
import { HeatMap } from "@/components/charts/HeatMap";
import { Meter } from "@/components/Meter";
import { Select } from "@/components/Select";
import { Skeleton } from "@/components/Skeleton";
import { STEP_PARTS, rankTimesQuery, type StepPart, type RankColumn } from "@/features/metrics/timing/rankTimes";
import { count, shortTime } from "@/lib/format";
import { heatMapOf } from "@/lib/charts/heatMap";
import { median } from "@/features/metrics/timing/median";
import type { StepWindow } from "@/lib/charts/stepWindow";

interface Props {
  team: string;
  run: string;
  live: boolean;
  window: StepWindow | null;
  newest: number;
  part: StepPart;
  onPart: (part: StepPart) => void;
  /** The name of a rank's node, if there are several. */
  nodeOf: (rank: number) => string | undefined;
  /** A link to a rank's log. */
  logOf: (rank: number) => ReactNode;
}

const MAX_COLUMNS = 96;

/** The time each rank spends in one part of a step, over the steps. All ranks wait for a slow one. */
export function RankHeatMap({ team, run, live, window, newest, part, onPart, nodeOf, logOf }: Props) {
  const [rank, setRank] = useState(0);
  const ranks = useQuery(rankTimesQuery({ team, run, part, window, newest, live }));
  const columns = ranks.data;
  const map = useMemo(
    () => heatMapOf((columns ?? []).map(({ rank, column }) => ({ label: String(rank), column })), MAX_COLUMNS, "even"),
    [columns],
  );
  if (ranks.isError) return <ErrorState error={ranks.error} onRetry={() => void ranks.refetch()} />;
  if (columns === undefined) return <Skeleton rows={1} height={280} />;
  const chosen = Math.min(rank, Math.max(0, columns.length - 1));
  const partSelect = (
    <Select
      aria-label="Part of the step"
      value={part}
      onChange={(event) => {
        onPart(STEP_PARTS.find((part) => part === event.target.value) ?? part);
      }}
    >
      {STEP_PARTS.map((part) => (
        <option key={part}>{part}</option>
      ))}
    </Select>
  );
  return (
    <div className="mt-3" aria-busy={ranks.isPlaceholderData}>
      {columns.length === 0 ? (
        <section className="panel p-3">
          <h2 className="font-medium">{TITLE}</h2>
          <p className="mt-2 text-small text-soft">{live ? "Every tenth step is measured." : "None of these steps was measured by rank."}</p>
        </section>
      ) : columns.every(({ column }) => column.steps.length < MIN_SAMPLES) ? (
        <SingleSample columns={columns} part={part} controls={partSelect} />
      ) : (
        <HeatMap
          title={TITLE}
          rowName="rank"
          map={map}
          text={shortTime}
          selectedRow={chosen}
          onSelectRow={setRank}
          controls={partSelect}
        >
          <p className="mt-2 border-t pt-2 text-small text-soft">
            {comparisonText(columns, chosen, part, nodeOf(columns[chosen]?.rank ?? 0))} Ranks wait for each other in collectives: the slowest one waits least there and
            takes longest in forward, backward or data. {logOf(columns[chosen]?.rank ?? 0)}
          </p>
        </HeatMap>
      )}
    </div>
  );
}

const TITLE = "time by rank";
/** Fewer make no map. */
const MIN_SAMPLES = 2;

/** The ranks' times in the only measured step, as bars. */
function SingleSample({ columns, part, controls }: { columns: readonly RankColumn[]; part: StepPart; controls: ReactNode }) {
  const times = columns.map(({ rank, column }) => ({ rank, seconds: column.values[0] ?? 0 }));
  const most = Math.max(...times.map(({ seconds }) => seconds), Number.MIN_VALUE);
  return (
    <section className="panel p-3">
      <div className="flex flex-wrap items-center gap-3">
        <h2 className="font-medium">{TITLE}</h2>
        <span>{controls}</span>
      </div>
      <p className="mt-1 text-small text-soft">
        {part} at step {count(columns[0]?.column.steps[0] ?? 0)}, the only one measured so far
      </p>
      <ul className="mt-2 grid grid-cols-2 gap-x-6 gap-y-1 max-tablet:grid-cols-1">
        {times.map(({ rank, seconds }) => (
          <li key={rank} className="flex items-center gap-3 text-small">
            <span className="w-16 shrink-0 text-soft">rank {rank}</span>
            <Meter fraction={seconds / most} label={`Time of rank ${rank}`} className="flex-1" />
            <span className="w-16 shrink-0 text-right">{shortTime(seconds)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Compares the selected rank with the median of the others, as the straggler score does. */
function comparisonText(columns: readonly RankColumn[], chosen: number, part: StepPart, node: string | undefined): string {
  const medians = columns.map(({ column }) => median(column.values));
  const [own, others] = [medians[chosen] ?? 0, median(medians.filter((_, index) => index !== chosen))];
  const where = node === undefined ? "" : ` on ${node}`;
  const words = `Rank ${columns[chosen]?.rank ?? 0}${where} takes ${shortTime(own)} for ${part}`;
  if (others === 0) return `${words}.`;
  const share = Math.round((own / others - 1) * 100);
  const compared = columns.length === 2 ? "the other rank" : "the median of the other ranks";
  return `${words}, ${share === 0 ? "as much as" : `${Math.abs(share)} % ${share > 0 ? "more" : "less"} than`} ${compared}.`;
}
