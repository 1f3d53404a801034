import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { Bytes } from "@/components/Bytes";
import { LogView } from "@/features/runs/log/LogView";
import type { LogSource } from "@/features/runs/log/logQueries";
import type { LogSearch } from "@/features/runs/log/logSearch";

interface Props {
  place: LogSource;
  bytes: number;
  node: string | null;
  live: boolean;
  /** The log position in the address; null if it is another log's. */
  view: LogSearch | null;
  onView: (view: LogSearch) => void;
}

export function LogPanel({ place, bytes, node, live, view, onView }: Props) {
  const isTarget = view !== null;
  const [open, setOpen] = useState(isTarget);
  const [wasTarget, setWasTarget] = useState(isTarget);
  if (isTarget !== wasTarget) {
    setWasTarget(isTarget);
    if (isTarget) setOpen(true);
  }
  return (
    <section className="panel overflow-hidden">
      <h2>
        <button
          type="button"
          aria-expanded={open}
          className="flex h-9 w-full items-center gap-2 px-3 text-left hover:bg-raised focus-visible:-outline-offset-2 max-tablet:h-11"
          onClick={() => {
            setOpen(!open);
          }}
        >
          <ChevronRight aria-hidden size={14} className={open ? "rotate-90" : ""} />
          <span className="font-medium">attempt {place.attempt}</span>
          <span>{titleOf(place.file)}</span>
          {node !== null && <span className="min-w-0 truncate text-soft">on {node}</span>}
          <span className="ml-auto text-soft">
            <Bytes value={bytes} />
          </span>
        </button>
      </h2>
      {open && <LogView place={place} bytes={bytes} live={live} line={view?.line} find={view?.find ?? ""} onView={onView} />}
    </section>
  );
}

/** `rank 0` for `rank-0.log`; other files keep their names. */
function titleOf(file: string): string {
  const rank = /^rank[-_]?(\d+)/.exec(file);
  return rank === null ? file : `rank ${rank[1] ?? ""}`;
}
