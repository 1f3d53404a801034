import { useState } from "react";

const SHORT_CHARACTERS = 300;

/** A document's beginning, as it stands; more of it on demand. */
export function DocumentText({ text, dim = false }: { text: string; dim?: boolean }) {
  const [whole, setWhole] = useState(false);
  const long = text.length > SHORT_CHARACTERS;
  return (
    <div className={`border-l-2 pl-3 ${dim ? "text-soft" : ""}`}>
      <p className="font-mono text-mono break-words whitespace-pre-wrap">
        {long && !whole ? `${text.slice(0, SHORT_CHARACTERS)}…` : text}
      </p>
      {long && (
        <button
          type="button"
          aria-expanded={whole}
          className="rounded-box text-small text-accent hover:underline max-tablet:min-h-11"
          onClick={() => {
            setWhole(!whole);
          }}
        >
          {whole ? "less" : "more"}
        </button>
      )}
    </div>
  );
}
