import { memo } from "react";
import { stripAnsi } from "@/features/runs/log/stripAnsi";
import { clockTime, count, fullTime } from "@/lib/format";

interface Props {
  number: number;
  /** Undefined while loading. */
  text: string | undefined;
  /** When the line arrived; undefined if that is not known. */
  time: string | undefined;
  /** The search text; empty: none. */
  find: string;
  /** The address names this line. */
  isTarget: boolean;
  /** Number of digits of the largest line number. */
  digits: number;
  /** Must be stable, so that scrolling does not re-render rows. */
  onSelect: (number: number) => void;
}

/** One line of a log; a click on its number puts it into the address. */
export const LogRow = memo(function LogRow({ number, text, time, find, isTarget, digits, onSelect }: Props) {
  return (
    <div
      aria-current={isTarget ? "true" : undefined}
      className={`flex h-[18px] pr-4 ${isTarget ? "bg-accent/15 shadow-[inset_3px_0_var(--color-accent)]" : "hover:bg-raised"}`}
    >
      <button
        type="button"
        tabIndex={-1}
        aria-label={`Link to line ${count(number)}`}
        className="shrink-0 pr-4 pl-4 text-right text-soft tabular-nums select-none hover:text-accent"
        style={{ width: `calc(${Math.max(3, digits)}ch + 2rem)` }}
        onClick={() => {
          onSelect(number);
        }}
      >
        {number}
      </button>
      <time dateTime={time} title={time === undefined ? undefined : fullTime(time)} className="w-[calc(8ch+1rem)] shrink-0 text-soft tabular-nums select-none max-tablet:hidden">
        {time === undefined ? "" : clockTime(time)}
      </time>
      <span className={`whitespace-pre ${text === undefined ? "text-soft" : ""}`}>{text === undefined ? "…" : <Highlighted text={stripAnsi(text)} find={find} />}</span>
    </div>
  );
});

/** Highlights the search text. */
function Highlighted({ text, find }: { text: string; find: string }) {
  if (find === "") return text;
  const parts = [];
  let from = 0;
  for (const { index, 0: found } of text.matchAll(new RegExp(escapeRegExp(find), "giu"))) {
    parts.push(text.slice(from, index), <mark key={index} className="rounded-xs bg-warn text-surface">{found}</mark>);
    from = index + found.length;
  }
  return [...parts, text.slice(from)];
}

function escapeRegExp(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
