import { useId, useState, type ReactNode } from "react";
import { CollapsibleHeader } from "@/components/CollapsibleHeader";

interface Props {
  title: string;
  /** Shown next to the title: a short summary of the content. */
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
      <CollapsibleHeader
        title={title}
        isOpen={open}
        controls={bodyId}
        onToggle={() => {
          setOpen(!open);
        }}
      >
        {summary !== undefined && <span className="min-w-0 truncate text-small text-soft">{summary}</span>}
      </CollapsibleHeader>
      <div id={bodyId} hidden={!open} className="px-4 pt-1 pb-3">
        {open && children}
      </div>
    </div>
  );
}
