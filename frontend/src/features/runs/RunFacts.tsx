import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Run } from "@/api/types";
import { TagChip } from "@/components/TagChip";
import { count } from "@/lib/format";

const LONG_NOTES = 280;

/** What people said of a run: tags and notes, and which run it was forked from. */
export function RunFacts({ team, run }: { team: string; run: Run }) {
  const [whole, setWhole] = useState(false);
  const { tags, notes, forked_from: origin } = run;
  const long = notes.length > LONG_NOTES;
  if (tags.length === 0 && notes === "" && !origin) return null;
  return (
    <div className="-mt-1 mb-4 flex flex-col gap-2">
      {(tags.length > 0 || origin) && (
        <p className="flex flex-wrap items-center gap-2 text-small text-soft">
          {origin && (
            <span>
              Forked from{" "}
              {origin.run ? (
                <Link to="/$team/runs/$runId/$tab" params={{ team, runId: origin.run, tab: "overview" }} className="text-accent underline">
                  {origin.name}
                </Link>
              ) : (
                `${origin.name}, which was deleted,`
              )}{" "}
              at step {count(origin.step)}
            </span>
          )}
          {tags.map((tag) => (
            <Link key={tag} to="/$team/runs" params={{ team }} search={{ tag: [tag] }} title={`Runs tagged ${tag}`}>
              <TagChip name={tag} />
            </Link>
          ))}
        </p>
      )}
      {notes !== "" && (
        <p className="max-w-3xl break-words whitespace-pre-line text-soft">
          {long && !whole ? `${notes.slice(0, LONG_NOTES)}… ` : notes}
          {long && (
            <button
              type="button"
              className="ml-1 text-accent underline"
              onClick={() => {
                setWhole(!whole);
              }}
            >
              {whole ? "less" : "more"}
            </button>
          )}
        </p>
      )}
    </div>
  );
}
