import { ChevronRight } from "lucide-react";
import type { ReactNode } from "react";

interface Props {
  title: string;
  isOpen: boolean;
  /** Id of the content. */
  controls: string;
  onToggle: () => void;
  children?: ReactNode;
}

/** The button that opens and closes a section. */
export function CollapsibleHeader({ title, isOpen, controls, onToggle, children }: Props) {
  return (
    <button
      type="button"
      aria-expanded={isOpen}
      aria-controls={controls}
      className="flex min-h-8 w-full items-center gap-2 px-4 py-1 text-left hover:bg-raised max-tablet:min-h-11"
      onClick={onToggle}
    >
      <ChevronRight aria-hidden size={14} className={`shrink-0 ${isOpen ? "rotate-90" : ""}`} />
      <span className="shrink-0 font-medium">{title}</span>
      {children}
    </button>
  );
}
