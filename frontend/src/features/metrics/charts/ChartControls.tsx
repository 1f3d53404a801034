import { SlidersHorizontal } from "lucide-react";
import { memo, useId, useState, type ReactNode } from "react";
import type { ChartView } from "@/features/metrics/charts/chartView";
import { Segmented } from "@/components/Segmented";

interface Props {
  view: ChartView;
  onChange: (view: ChartView) => void;
  /** Shows the legend of the markers on the x axis. */
  showMarkerLegend?: boolean;
  /** Further controls. */
  children: ReactNode;
}

/** The controls of all charts of a page. Phones show the x axis and the smoothing; a button, or a zoom, opens the others. */
export const ChartControls = memo(function ChartControls({ view, onChange, showMarkerLegend = true, children }: Props) {
  const restId = useId();
  const isZoomed = view.window !== null;
  const [open, setOpen] = useState(isZoomed);
  const [wasZoomed, setWasZoomed] = useState(isZoomed);
  if (isZoomed !== wasZoomed) {
    setWasZoomed(isZoomed);
    if (isZoomed) setOpen(true);
  }
  return (
    <div className="mb-3 flex flex-wrap items-center gap-x-4 gap-y-2 text-small text-soft">
      <Segmented
        label="x axis"
        value={view.x}
        options={["step", "tokens", "time"]}
        onChange={(x) => {
          onChange({ ...view, x });
        }}
      />
      <label className="flex items-center gap-2">
        smooth
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          className="slider h-6 w-20"
          value={view.smooth}
          onChange={(event) => {
            onChange({ ...view, smooth: Number(event.target.value) });
          }}
        />
      </label>
      <button
        type="button"
        aria-label="Chart options"
        title="Chart options"
        aria-expanded={open}
        aria-controls={restId}
        className="control grid size-11 place-items-center text-text hover:bg-raised aria-expanded:bg-raised tablet:hidden"
        onClick={() => {
          setOpen(!open);
        }}
      >
        <SlidersHorizontal aria-hidden size={16} />
      </button>
      <div id={restId} className={`contents ${open ? "" : "max-tablet:hidden"}`}>
        <Segmented
          label="y axis of the loss"
          value={view.y}
          options={["linear", "log"]}
          onChange={(y) => {
            onChange({ ...view, y });
          }}
        />
        {children}
      </div>
      {showMarkerLegend && (
        <span aria-hidden className="ml-auto flex items-center gap-4 max-tablet:hidden">
          <span>▲ stored checkpoint</span>
          <span>┆ attempt</span>
          <span>✕ failure</span>
        </span>
      )}
    </div>
  );
});
