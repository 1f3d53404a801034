import { useState } from "react";

const SHORT_CHARACTERS = 300;
const SHORT_LINES = 5;

/** The start of a document; the rest on demand. */
export function DocumentText({ text, isDimmed = false }: { text: string; isDimmed?: boolean }) {
  const [isExpanded, setExpanded] = useState(false);
  const start = text.split("\n", SHORT_LINES).join("\n").slice(0, SHORT_CHARACTERS);
  const long = start.length < text.length;
  return (
    <div className={`border-l-2 pl-3 ${isDimmed ? "text-soft" : ""}`}>
      <p className="font-mono text-mono break-words whitespace-pre-wrap">
        {long && !isExpanded ? `${start}…` : text}
      </p>
      {long && (
        <button
          type="button"
          aria-expanded={isExpanded}
          className="rounded-box text-small text-accent hover:underline max-tablet:min-h-11"
          onClick={() => {
            setExpanded(!isExpanded);
          }}
        >
          {isExpanded ? "less" : "more"}
        </button>
      )}
    </div>
  );
}
