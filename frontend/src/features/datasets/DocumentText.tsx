import { useState } from "react";

const SHORT_CHARACTERS = 300;

/** The start of a document; the rest on demand. */
export function DocumentText({ text, isDimmed = false }: { text: string; isDimmed?: boolean }) {
  const [isExpanded, setExpanded] = useState(false);
  const long = text.length > SHORT_CHARACTERS;
  return (
    <div className={`border-l-2 pl-3 ${isDimmed ? "text-soft" : ""}`}>
      <p className="font-mono text-mono break-words whitespace-pre-wrap">
        {long && !isExpanded ? `${text.slice(0, SHORT_CHARACTERS)}…` : text}
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
