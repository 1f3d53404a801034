import { ChevronRight } from "lucide-react";
import { useId, useState, type ReactNode } from "react";

interface Props {
  title: string;
  /** Shown beside the title: a short summary of the content. */
  summary?: ReactNode;
  defaultOpen?: boolean;
  children: ReactNode;
}

/** A section that opens on demand. Its content is rendered and fetched only when open. */
export function Collapsible({ title, summary, defaultOpen = false, children }: Props) {
  const [open, setOpen] = useState(defaultOpen);
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
