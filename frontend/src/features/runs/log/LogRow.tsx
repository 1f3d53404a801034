import { memo } from "react";
import { stripAnsi } from "@/features/runs/log/stripAnsi";
import { count } from "@/lib/format";

interface Props {
  number: number;
  /** Undefined while loading. */
  text: string | undefined;
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
export const LogRow = memo(function LogRow({ number, text, find, isTarget, digits, onSelect }: Props) {
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
