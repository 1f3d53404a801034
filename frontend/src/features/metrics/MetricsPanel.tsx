import { memo, useMemo, type ReactNode } from "react";
import { EmptyState } from "@/components/EmptyState";
import { ZoomBar } from "@/components/ZoomBar";
import { ChartControls } from "@/features/metrics/ChartControls";
import { marksOf } from "@/features/metrics/marks";
import type { LiveMetrics } from "@/features/metrics/queries";
import type { Shown } from "@/features/metrics/useShown";
import { useZoom } from "@/features/metrics/useZoom";
import { SeriesChart } from "@/features/metrics/SeriesChart";
import type { ChartView } from "@/features/metrics/view";
import { axisOf, lastStep } from "@/lib/series";
import { percentText, shortTick, tick, wholePercent } from "@/features/metrics/seriesLooks";
import { decimal, rate } from "@/lib/format";

interface Props {
  metrics: LiveMetrics;
  shown: Shown;
  /** More steps are to come. */
  live: boolean;
  checkpointSteps: readonly number[];
  view: ChartView;
  onView: (view: ChartView) => void;
  /** Leads to other runs' curves. */
  compare: ReactNode;
}

const LOSSES = [
  { label: "train", name: "loss" },
  { label: "validation", name: "validation_loss" },
] as const;
const MFU = [{ label: "MFU", name: "mfu" }] as const;
const BOTH_MFU = [
  { label: "of the FP8 peak", name: "mfu" },
  { label: "of the BF16 peak", name: "bf16_mfu" },
] as const;
const SPEED = [{ label: "tokens/s", name: "tokens_per_second" }] as const;
const NORM = [{ label: "grad norm", name: "grad_norm" }] as const;

/** The charts of a run: loss first and largest, then whether the machine is well used. */
export const MetricsPanel = memo(function MetricsPanel({ metrics, shown, live, checkpointSteps, view, onView, compare }: Props) {
  const { columns: whole, attempts } = metrics;
  const axis = useMemo(() => axisOf(whole, view.x), [whole, view.x]);
  const marks = useMemo(() => marksOf(attempts, checkpointSteps, axis.at), [attempts, checkpointSteps, axis]);
  const zoom = useZoom({
    axis,
    newest: lastStep(whole),
    window: view.window,
    grows: live,
    onWindow: (window) => {
      onView({ ...view, window });
    },
  });
  const controls = useMemo(
    () => (
      <>
        {compare}
        <ZoomBar zoom={zoom} error={shown.error} />
      </>
    ),
    [compare, zoom, shown.error],
  );
  if (whole["loss"] === undefined) {
    return <EmptyState title="No numbers yet.">The curves begin with the first step.</EmptyState>;
  }
  const { columns, coarse } = shown;
  const shared = { columns, coarse, zoom, position: axis.at, marks, view };
  return (
    <>
      <ChartControls view={view} onChange={onView}>
        {controls}
      </ChartControls>
      <div className="mb-3 grid grid-cols-[2fr_1fr_1fr] gap-3 max-desk:grid-cols-2 max-tablet:grid-cols-1">
        <div className="grid min-w-0 max-desk:col-span-full">
          <SeriesChart {...shared} title="loss" series={LOSSES} scale={view.y === "log" ? "log" : "fit"} text={decimal} axisText={tick} />
        </div>
        {whole["mfu"] !== undefined && (
          <SeriesChart {...shared} title="MFU, %" series={whole["bf16_mfu"] === undefined ? MFU : BOTH_MFU} scale="zero" text={percentText} axisText={wholePercent} />
        )}
        <SeriesChart {...shared} title="tokens/s" series={SPEED} scale="zero" text={rate} axisText={shortTick} />
        {whole["mfu"] === undefined && (
          <SeriesChart {...shared} title="grad norm" series={NORM} scale="zero" text={decimal} axisText={tick} />
        )}
      </div>
    </>
  );
});
