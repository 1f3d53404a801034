import { count } from "@/lib/format";

interface Props {
  number: number;
  /** Undefined while it is on its way. */
  text: string | undefined;
  /** What is searched for; empty: nothing. */
  find: string;
  /** The address names this line. */
  chosen: boolean;
  top: number;
  /** Of the largest number. */
  digits: number;
  onChoose: () => void;
}

/** One line of a log; a click on its number puts it into the address. */
export function LogRow({ number, text, find, chosen, top, digits, onChoose }: Props) {
  return (
    <div
      aria-current={chosen ? "true" : undefined}
      className={`absolute left-0 flex h-[18px] min-w-full pr-4 ${chosen ? "bg-accent/15 shadow-[inset_3px_0_var(--color-accent)]" : "hover:bg-raised"}`}
      style={{ top }}
    >
      <button
        type="button"
        tabIndex={-1}
        aria-label={`Link to line ${count(number)}`}
        className="shrink-0 pr-4 pl-4 text-right text-soft tabular-nums select-none hover:text-accent"
        style={{ width: `calc(${Math.max(3, digits)}ch + 2rem)` }}
        onClick={onChoose}
      >
        {number}
      </button>
      <span className={`whitespace-pre ${text === undefined ? "text-soft" : ""}`}>{text === undefined ? "…" : <Marked text={plain(text)} find={find} />}</span>
    </div>
  );
}

/** The text with what was searched for marked. */
function Marked({ text, find }: { text: string; find: string }) {
  if (find === "") return text;
  const [whole, part] = [text.toLowerCase(), find.toLowerCase()];
  const pieces = [];
  let from = 0;
  for (let at = whole.indexOf(part); at !== -1; at = whole.indexOf(part, from)) {
    pieces.push(text.slice(from, at), <mark key={at} className="rounded-xs bg-warn text-surface">{text.slice(at, at + part.length)}</mark>);
    from = at + part.length;
  }
  return [...pieces, text.slice(from)];
}

// Colours of terminals mean nothing here.
const ESCAPES = new RegExp(String.raw`\u001b\[[0-9;]*[A-Za-z]`, "g");

function plain(text: string): string {
  return text.replace(ESCAPES, "");
}
