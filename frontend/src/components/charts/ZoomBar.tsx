import { ChevronLeft, ChevronRight, ZoomIn, ZoomOut, type LucideIcon } from "lucide-react";
import { ErrorNote } from "@/components/ErrorNote";
import type { ChartZoom } from "@/components/charts/chartOptions";
import type { WindowMove } from "@/lib/charts/stepWindow";
import { capitalize } from "@/lib/format";

interface Props {
  zoom: ChartZoom;
  /** Why the window's own points could not be loaded. */
  error: Error | null;
}

/** Shows the zoomed range and the buttons that change it, for users without a pointer. */
export function ZoomBar({ zoom, error }: Props) {
  const zoomed = zoom.range !== null;
  return (
    <div className="flex flex-wrap items-center gap-x-3 gap-y-2 text-small text-soft">
      <div role="group" aria-label="Zoom" className="control inline-flex overflow-hidden">
        <ZoomButton icon={ZoomIn} label="Zoom in" move="in" zoom={zoom} />
        <ZoomButton icon={ZoomOut} label="Zoom out" move="out" zoom={zoom} disabled={!zoomed} />
        <ZoomButton icon={ChevronLeft} label="Earlier steps" move="earlier" zoom={zoom} disabled={!zoomed} />
        <ZoomButton icon={ChevronRight} label="Later steps" move="later" zoom={zoom} disabled={!zoomed} />
      </div>
      <p role="status">{zoomed ? capitalize(zoom.label) : <span className="pointer-coarse:hidden">Drag across a chart to zoom in.</span>}</p>
      {zoomed && (
        <button
          type="button"
          className="rounded-box px-1 text-accent underline-offset-2 hover:underline max-tablet:min-h-11"
          onClick={() => {
            zoom.onMove("whole");
          }}
        >
          show all
        </button>
      )}
      {error !== null && <ErrorNote error={error} />}
    </div>
  );
}

interface ZoomButtonProps {
  icon: LucideIcon;
  label: string;
  move: WindowMove;
  zoom: ChartZoom;
  disabled?: boolean;
}

function ZoomButton({ icon: Icon, label, move, zoom, disabled = false }: ZoomButtonProps) {
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
