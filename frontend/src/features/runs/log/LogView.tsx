import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { ErrorState } from "@/components/ErrorState";
import { LogSearchBar } from "@/features/runs/log/LogSearchBar";
import { LogRow } from "@/features/runs/log/LogRow";
import { logTotalQuery, type LogSource } from "@/features/runs/log/logQueries";
import type { LogSearch } from "@/features/runs/log/logSearch";
import { stripAnsi } from "@/features/runs/log/stripAnsi";
import { useLogLines } from "@/features/runs/log/useLogLines";
import { LINE_PX, useLogScroll } from "@/features/runs/log/useLogScroll";

interface Props {
  place: LogSource;
  bytes: number;
  live: boolean;
  /** The line that the address names. */
  line: number | undefined;
  find: string;
  onView: (view: Pick<LogSearch, "line" | "find">) => void;
}

/** A log of any length: only visible lines are requested and rendered. */
export function LogView({ place, bytes, live, line, find, onView }: Props) {
  const { data: total, error, refetch } = useQuery(logTotalQuery(place, bytes));
  const { box, list, position, start, end, following, stopFollowing, onScroll } = useLogScroll(total ?? 0, line);
  const lineAt = useLogLines(place, total ?? 0, bytes, start, end);
  const latest = useRef({ showLine, find });
  useEffect(() => {
    latest.current = { showLine, find };
  });
  const selectLine = useCallback((number: number) => {
    const { showLine, find } = latest.current;
    showLine({ line: number, find });
  }, []);

  const rows = visibleRows(start, end, total ?? 0);
  // As wide as the widest line shown so far, so that the text does not jump when a shorter one follows.
  const [maxLength, setMaxLength] = useState(0);
  const longest = Math.max(0, ...rows.map((row) => stripAnsi(lineAt(row + 1)?.text ?? "").length));
  if (longest > maxLength) setMaxLength(longest);

  if (total === undefined) {
    if (error === null) return <div className="h-24 border-t" />;
    return (
      <div className="border-t p-4">
        <ErrorState error={error} onRetry={() => void refetch()} />
      </div>
    );
  }
  if (total === 0) return <p className="border-t px-4 py-3 text-soft">The log is empty.</p>;
  const digits = String(total).length;
  return (
    <div className="border-t">
      <LogSearchBar place={place} total={total} line={line} find={find} onView={showLine} />
      <div
        ref={box}
        role="region"
        aria-label={`Log of attempt ${place.attempt}, ${place.file}`}
        tabIndex={0}
        className="h-[60vh] overflow-auto border-t font-mono text-mono focus-visible:-outline-offset-2"
        style={{ maxHeight: list.height + LINE_PX }}
        onScroll={onScroll}
      >
        <div className="relative w-max overflow-hidden [--time-width:8ch] max-tablet:[--time-width:0ch]" style={{ height: list.height, minWidth: `max(100%, calc(${Math.max(3, digits) + maxLength}ch + ${TIME_WIDTH}))` }}>
          <div className="will-change-transform" style={{ transform: `translateY(${Math.round(list.topOf(rows[0] ?? 0, position))}px)` }}>
            {rows.map((row) => (
              <LogRow
                key={row}
                number={row + 1}
                text={lineAt(row + 1)?.text}
                time={lineAt(row + 1)?.time ?? undefined}
                find={find}
                isTarget={row + 1 === line}
                digits={digits}
                onSelect={selectLine}
              />
            ))}
          </div>
        </div>
      </div>
      {live && (
        <p className="border-t px-4 py-1 text-small text-soft">
          {following ? "Following new lines." : "Not following. Scroll to the end to follow again."}
        </p>
      )}
    </div>
  );

  function showLine(view: Pick<LogSearch, "line" | "find">): void {
    if (view.line !== undefined) stopFollowing();
    onView({ line: view.line, find: view.find === "" ? undefined : view.find });
  }
}

/** Of times, which phones do not show, and the space between the columns. */
const TIME_WIDTH = "var(--time-width) + 4rem";

/** Lines rendered above and below the visible ones, for smooth scrolling. */
const MARGIN_ROWS = 20;
/** Lines are added in batches, so that most scrolls do not re-render. */
const BATCH_ROWS = 8;

function visibleRows(start: number, end: number, total: number): number[] {
  const first = Math.max(0, Math.floor((start - MARGIN_ROWS) / BATCH_ROWS) * BATCH_ROWS);
  const last = Math.min(total, Math.ceil((end + MARGIN_ROWS) / BATCH_ROWS) * BATCH_ROWS);
  return Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
}
