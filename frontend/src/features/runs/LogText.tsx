import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { ErrorState } from "@/components/ErrorState";
import { LogFind } from "@/features/runs/LogFind";
import { LogRow } from "@/features/runs/LogRow";
import { logTotalQuery, type LogPlace } from "@/features/runs/logQueries";
import type { LogSearch } from "@/features/runs/logSearch";
import { plainLine } from "@/features/runs/plainLine";
import { useLogLines } from "@/features/runs/useLogLines";
import { LINE_PX, useLogScroll } from "@/features/runs/useLogScroll";

interface Props {
  place: LogPlace;
  bytes: number;
  live: boolean;
  /** The line that the address names. */
  line: number | undefined;
  find: string;
  onView: (view: Pick<LogSearch, "line" | "find">) => void;
}

/** A log by its lines, however many: only those in sight are asked for and are in the page. */
export function LogText({ place, bytes, live, line, find, onView }: Props) {
  const { data: total, error, refetch } = useQuery(logTotalQuery(place, bytes));
  const { box, list, place: at, begin, end, following, stay, onScroll } = useLogScroll(total ?? 0, line);
  const textOf = useLogLines(place, total ?? 0, bytes, begin, end);
  const latest = useRef({ look, find });
  useEffect(() => {
    latest.current = { look, find };
  });
  const choose = useCallback((number: number) => {
    const { look, find } = latest.current;
    look({ line: number, find });
  }, []);

  const rows = rowsOf(begin, end, total ?? 0);
  // As wide as the widest line that was shown: else the text jumps aside when a shorter one comes.
  const [widest, setWidest] = useState(0);
  const shown = Math.max(0, ...rows.map((row) => plainLine(textOf(row + 1) ?? "").length));
  if (shown > widest) setWidest(shown);

  if (total === undefined) {
    if (error === null) return <div className="h-24 border-t" />;
    return (
      <div className="border-t p-4">
        <ErrorState error={error} onRetry={() => void refetch()} />
      </div>
    );
  }
  if (total === 0) return <p className="border-t px-4 py-3 text-soft">Nothing is written yet.</p>;
  const digits = String(total).length;
  return (
    <div className="border-t">
      <LogFind place={place} total={total} line={line} find={find} onView={look} />
      <div
        ref={box}
        role="region"
        aria-label={`Log of attempt ${place.attempt}, ${place.file}`}
        tabIndex={0}
        className="h-[60vh] overflow-auto border-t font-mono text-mono focus-visible:-outline-offset-2"
        style={{ maxHeight: list.height + LINE_PX }}
        onScroll={onScroll}
      >
        <div className="relative w-max overflow-hidden" style={{ height: list.height, minWidth: `max(100%, calc(${Math.max(3, digits) + widest}ch + 3rem))` }}>
          <div className="will-change-transform" style={{ transform: `translateY(${Math.round(list.topOf(rows[0] ?? 0, at))}px)` }}>
            {rows.map((row) => (
              <LogRow
                key={row}
                number={row + 1}
                text={textOf(row + 1)}
                find={find}
                chosen={row + 1 === line}
                digits={digits}
                onChoose={choose}
              />
            ))}
          </div>
        </div>
      </div>
      {live && (
        <p className="border-t px-4 py-1 text-small text-soft">
          {following ? "Following the end." : "Not following. Scroll to the end to follow again."}
        </p>
      )}
    </div>
  );

  function look(view: Pick<LogSearch, "line" | "find">): void {
    if (view.line !== undefined) stay();
    onView({ line: view.line, find: view.find === "" ? undefined : view.find });
  }
}

/** Drawn above and below what is in sight, so that a scroll finds lines there. */
const MARGIN_ROWS = 20;
/** Lines come and go in bunches, so that most scrolls only move them. */
const BUNCH_ROWS = 8;

function rowsOf(begin: number, end: number, total: number): number[] {
  const first = Math.max(0, Math.floor((begin - MARGIN_ROWS) / BUNCH_ROWS) * BUNCH_ROWS);
  const last = Math.min(total, Math.ceil((end + MARGIN_ROWS) / BUNCH_ROWS) * BUNCH_ROWS);
  return Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
}
