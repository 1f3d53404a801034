import { useQuery } from "@tanstack/react-query";
import { useMemo, useState, type ReactNode } from "react";
import { ErrorState } from "@/components/ErrorState";
import { HeatMap } from "@/components/HeatMap";
import { Select } from "@/components/Select";
import { Skeleton } from "@/components/Skeleton";
import { PHASES, rankSecondsQuery, type Phase, type RankColumn } from "@/features/metrics/rankQueries";
import { shortTime } from "@/lib/format";
import { heatMapOf } from "@/lib/heatMap";
import { median } from "@/lib/median";
import type { StepWindow } from "@/lib/stepWindow";

interface Props {
  team: string;
  run: string;
  live: boolean;
  window: StepWindow | null;
  newest: number;
  phase: Phase;
  onPhase: (phase: Phase) => void;
  /** What leads to a rank's log. */
  logOf: (rank: number) => ReactNode;
}

const COLUMNS = 96;

/** Every rank over the steps, coloured by the time it spent in one phase: where one is slow, all wait for it. */
export function RankMap({ team, run, live, window, newest, phase, onPhase, logOf }: Props) {
  const [rank, setRank] = useState(0);
  const ranks = useQuery(rankSecondsQuery({ team, run, phase, window, newest, live }));
  const columns = ranks.data;
  const map = useMemo(
    () => heatMapOf((columns ?? []).map(({ rank, column }) => ({ label: String(rank), column })), COLUMNS, "even"),
    [columns],
  );
  if (ranks.isError) return <ErrorState error={ranks.error} onRetry={() => void ranks.refetch()} />;
  if (columns === undefined) return <Skeleton rows={1} height={280} />;
  const chosen = Math.min(rank, Math.max(0, columns.length - 1));
  return (
    <div className="mt-3" aria-busy={ranks.isPlaceholderData}>
      {columns.length === 0 ? (
        <section className="panel p-3">
          <h2 className="font-medium">{TITLE}</h2>
          <p className="mt-2 text-small text-soft">{live ? "Every tenth step is measured." : "No step of these was measured rank by rank."}</p>
        </section>
      ) : (
        <HeatMap
          title={TITLE}
          rowName="rank"
          map={map}
          text={shortTime}
          chosen={chosen}
          onChoose={setRank}
          controls={
            <Select
              aria-label="Phase"
              value={phase}
              onChange={(event) => {
                onPhase(PHASES.find((one) => one === event.target.value) ?? phase);
              }}
            >
              {PHASES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </Select>
          }
        >
          <p className="mt-2 border-t pt-2 text-small text-soft">
            {compared(columns, chosen, phase)} Ranks wait for each other in collectives: the slow one waits least there, and
            takes longest in forward, backward or data. {logOf(columns[chosen]?.rank ?? 0)}
          </p>
        </HeatMap>
      )}
    </div>
  );
}

const TITLE = "time by rank";

/** How the chosen rank stands to the middle of all. */
function compared(columns: readonly RankColumn[], chosen: number, phase: Phase): string {
  const middles = columns.map(({ column }) => median(column.values));
  const [own, all] = [middles[chosen] ?? 0, median(middles)];
  const words = `Rank ${columns[chosen]?.rank ?? 0} takes ${shortTime(own)} for ${phase}`;
  if (all === 0) return `${words}.`;
  const share = Math.round((own / all - 1) * 100);
  return `${words}, ${share === 0 ? "as the ranks do" : `${Math.abs(share)} % ${share > 0 ? "more" : "less"} than the ranks do`} in the middle.`;
}
