import { ChevronLeft, ChevronRight, ZoomIn, ZoomOut, type LucideIcon } from "lucide-react";
import { ErrorNote } from "@/components/ErrorNote";
import type { ChartZoom } from "@/components/chartOptions";
import type { WindowMove } from "@/lib/stepWindow";

interface Props {
  zoom: ChartZoom;
  /** Why the window's own points do not come. */
  error: Error | null;
}

/** What of the run the charts show, and the buttons that change it: for those who have no pointer to drag with. */
export function ZoomBar({ zoom, error }: Props) {
  const zoomed = zoom.range !== null;
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-2 text-small text-soft">
      <div role="group" aria-label="Zoom" className="control inline-flex overflow-hidden">
        <Step icon={ZoomIn} label="Zoom in" move="in" zoom={zoom} />
        <Step icon={ZoomOut} label="Zoom out" move="out" zoom={zoom} disabled={!zoomed} />
        <Step icon={ChevronLeft} label="Earlier steps" move="earlier" zoom={zoom} disabled={!zoomed} />
        <Step icon={ChevronRight} label="Later steps" move="later" zoom={zoom} disabled={!zoomed} />
      </div>
      <p role="status">{zoomed ? sentence(zoom.words) : "Drag across a chart to look closer."}</p>
      {zoomed && (
        <button
          type="button"
          className="rounded-box px-1 text-accent underline-offset-2 hover:underline max-tablet:min-h-11"
          onClick={() => {
            zoom.onMove("whole");
          }}
        >
          whole run
        </button>
      )}
      {error !== null && <ErrorNote error={error} />}
    </div>
  );
}

interface StepProps {
  icon: LucideIcon;
  label: string;
  move: WindowMove;
  zoom: ChartZoom;
  disabled?: boolean;
}

function Step({ icon: Icon, label, move, zoom, disabled = false }: StepProps) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      aria-disabled={disabled}
      className="grid h-6 w-8 place-items-center text-text not-first:border-l hover:bg-raised focus-visible:-outline-offset-2 aria-disabled:opacity-40 max-tablet:h-11 max-tablet:w-11"
      onClick={() => {
        if (!disabled) zoom.onMove(move);
      }}
    >
      <Icon aria-hidden size={14} />
    </button>
  );
}

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
