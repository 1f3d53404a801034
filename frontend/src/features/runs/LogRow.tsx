import { memo } from "react";
import { plainLine } from "@/features/runs/plainLine";
import { count } from "@/lib/format";

interface Props {
  number: number;
  /** Undefined while it is on its way. */
  text: string | undefined;
  /** What is searched for; empty: nothing. */
  find: string;
  /** The address names this line. */
  chosen: boolean;
  /** Of the largest number. */
  digits: number;
  /** Given the number; it stays the same function, so that a scroll makes no row anew. */
  onChoose: (number: number) => void;
}

/** One line of a log; a click on its number puts it into the address. */
export const LogRow = memo(function LogRow({ number, text, find, chosen, digits, onChoose }: Props) {
  return (
    <div
      aria-current={chosen ? "true" : undefined}
      className={`flex h-[18px] pr-4 ${chosen ? "bg-accent/15 shadow-[inset_3px_0_var(--color-accent)]" : "hover:bg-raised"}`}
    >
      <button
        type="button"
        tabIndex={-1}
        aria-label={`Link to line ${count(number)}`}
        className="shrink-0 pr-4 pl-4 text-right text-soft tabular-nums select-none hover:text-accent"
        style={{ width: `calc(${Math.max(3, digits)}ch + 2rem)` }}
        onClick={() => {
          onChoose(number);
        }}
      >
        {number}
      </button>
      <span className={`whitespace-pre ${text === undefined ? "text-soft" : ""}`}>{text === undefined ? "…" : <Marked text={plainLine(text)} find={find} />}</span>
    </div>
  );
});

/** The text with what was searched for marked. */
function Marked({ text, find }: { text: string; find: string }) {
  if (find === "") return text;
  const pieces = [];
  let from = 0;
  for (const { index, 0: found } of text.matchAll(new RegExp(literal(find), "giu"))) {
    pieces.push(text.slice(from, index), <mark key={index} className="rounded-xs bg-warn text-surface">{found}</mark>);
    from = index + found.length;
  }
  return [...pieces, text.slice(from)];
}

function literal(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}
