import { memo, type ReactNode } from "react";
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

export const ChartControls = memo(function ChartControls({ view, onChange, showMarkerLegend = true, children }: Props) {
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
      <Segmented
        label="y axis of the loss"
        value={view.y}
        options={["linear", "log"]}
        onChange={(y) => {
          onChange({ ...view, y });
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
      {children}
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
