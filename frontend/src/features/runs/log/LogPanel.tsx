import { useMutation } from "@tanstack/react-query";
import { ChevronRight, Download } from "lucide-react";
import { useState } from "react";
import { Bytes } from "@/components/Bytes";
import { ErrorNote } from "@/components/ErrorNote";
import { LogView } from "@/features/runs/log/LogView";
import { readLog, type LogSource } from "@/features/runs/log/logQueries";
import type { LogSearch } from "@/features/runs/log/logSearch";
import { downloadText } from "@/lib/downloadText";

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
  const download = useMutation({
    mutationFn: () => readLog(place),
    onSuccess: (parts) => {
      downloadText(`${place.run}-attempt-${place.attempt}-${place.file}`, "text/plain", ...parts);
    },
  });
  return (
    <section className="panel overflow-hidden">
      <div className="flex">
        <h2 className="min-w-0 grow">
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
        <button
          type="button"
          aria-label={`Download ${place.file} of attempt ${place.attempt}`}
          title="Download"
          disabled={download.isPending}
          className="grid w-9 shrink-0 place-items-center border-l text-soft hover:bg-raised hover:text-text focus-visible:-outline-offset-2 disabled:opacity-50 max-tablet:w-11"
          onClick={() => {
            download.mutate();
          }}
        >
          <Download aria-hidden size={14} />
        </button>
      </div>
      {download.error !== null && (
        <div className="border-t p-3">
          <ErrorNote error={download.error} />
        </div>
      )}
      {open && <LogView place={place} bytes={bytes} live={live} line={view?.line} find={view?.find ?? ""} onView={onView} />}
    </section>
  );
}

/** `rank 0` for `rank-0.log`; other files keep their names. */
function titleOf(file: string): string {
  const rank = /^rank[-_]?(\d+)/.exec(file);
  return rank === null ? file : `rank ${rank[1] ?? ""}`;
}
