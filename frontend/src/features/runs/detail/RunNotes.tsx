import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Run } from "@/api/types";
import { TagChip } from "@/components/TagChip";
import { count } from "@/lib/format";

const MAX_COLLAPSED = 280;

/** A run's tags, notes and fork origin. */
export function RunNotes({ team, run }: { team: string; run: Run }) {
  const [isExpanded, setExpanded] = useState(false);
  const { tags, notes, forked_from: origin } = run;
  const isLong = notes.length > MAX_COLLAPSED;
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
                `${origin.name} (deleted)`
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
          {isLong && !isExpanded ? `${notes.slice(0, MAX_COLLAPSED)}… ` : notes}
          {isLong && (
            <button
              type="button"
              className="ml-1 text-accent underline"
              onClick={() => {
                setExpanded(!isExpanded);
              }}
            >
              {isExpanded ? "less" : "more"}
            </button>
          )}
        </p>
      )}
    </div>
  );
}
