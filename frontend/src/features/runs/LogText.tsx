import { useQuery } from "@tanstack/react-query";
import { ErrorState } from "@/components/ErrorState";
import { LogFind } from "@/features/runs/LogFind";
import { LogRow } from "@/features/runs/LogRow";
import { logTotalQuery, type LogPlace } from "@/features/runs/logQueries";
import type { LogSearch } from "@/features/runs/logSearch";
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
        <div className="relative w-max min-w-full overflow-hidden" style={{ height: list.height }}>
          {rowsOf(begin, Math.min(end + MARGIN_ROWS, total)).map((row) => (
            <LogRow
              key={row}
              number={row + 1}
              text={textOf(row + 1)}
              find={find}
              chosen={row + 1 === line}
              top={list.topOf(row, at)}
              digits={digits}
              onChoose={() => {
                look({ line: row + 1, find });
              }}
            />
          ))}
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

function rowsOf(begin: number, end: number): number[] {
  const first = Math.max(0, begin - MARGIN_ROWS);
  return Array.from({ length: Math.max(0, end - first) }, (_, index) => first + index);
}
