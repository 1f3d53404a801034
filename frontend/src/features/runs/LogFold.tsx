import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { Bytes } from "@/components/Bytes";
import { LogText } from "@/features/runs/LogText";
import type { LogPlace } from "@/features/runs/logQueries";
import type { LogSearch } from "@/features/runs/logSearch";

interface Props {
  place: LogPlace;
  bytes: number;
  live: boolean;
  /** What the address says of this log; null where it means another one. */
  view: LogSearch | null;
  onView: (view: LogSearch) => void;
}

export function LogFold({ place, bytes, live, view, onView }: Props) {
  const meant = view !== null;
  const [open, setOpen] = useState(meant);
  const [wasMeant, setWasMeant] = useState(meant);
  if (meant !== wasMeant) {
    setWasMeant(meant);
    if (meant) setOpen(true);
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
          <span className="ml-auto text-soft">
            <Bytes value={bytes} />
          </span>
        </button>
      </h2>
      {open && <LogText place={place} bytes={bytes} live={live} line={view?.line} find={view?.find ?? ""} onView={onView} />}
    </section>
  );
}

/** `rank-0.log` is the rank's; other files keep their name. */
function titleOf(file: string): string {
  const rank = /^rank[-_]?(\d+)/.exec(file);
  return rank === null ? file : `rank ${rank[1] ?? ""}`;
}
