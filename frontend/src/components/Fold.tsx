import { ChevronRight } from "lucide-react";
import { useId, useState, type ReactNode } from "react";

interface Props {
  title: string;
  /** Beside the title: what is inside, in short. */
  summary?: ReactNode;
  startsOpen?: boolean;
  children: ReactNode;
}

/** A part of a page that opens on demand; what is inside is made, and fetched, only then. */
export function Fold({ title, summary, startsOpen = false, children }: Props) {
  const [open, setOpen] = useState(startsOpen);
  const bodyId = useId();
  return (
    <div>
      <button
        type="button"
        aria-expanded={open}
        aria-controls={bodyId}
        className="flex min-h-8 w-full items-center gap-2 px-4 py-1 text-left hover:bg-raised max-tablet:min-h-11"
        onClick={() => {
          setOpen(!open);
        }}
      >
        <ChevronRight aria-hidden size={14} className={`shrink-0 ${open ? "rotate-90" : ""}`} />
        <span className="shrink-0 font-medium">{title}</span>
        {summary !== undefined && <span className="min-w-0 truncate text-small text-soft">{summary}</span>}
      </button>
      <div id={bodyId} hidden={!open} className="px-4 pt-1 pb-3">
        {open && children}
      </div>
    </div>
  );
}
