import { memo, useMemo, type ReactNode } from "react";
import { Collapsible } from "@/components/Collapsible";
import { EmptyState } from "@/components/EmptyState";
import { ZoomBar } from "@/components/charts/ZoomBar";
import { ChartControls } from "@/features/metrics/charts/ChartControls";
import { chartMarkers } from "@/features/metrics/charts/chartMarks";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";
import type { WindowedMetrics } from "@/features/metrics/charts/useWindowedMetrics";
import { useZoom } from "@/features/metrics/charts/useZoom";
import { SeriesChart } from "@/features/metrics/charts/SeriesChart";
import type { ChartView } from "@/features/metrics/charts/chartView";
import { HardwareCharts } from "@/features/metrics/hardware/HardwareCharts";
import { hardwareText, hasHardware } from "@/features/metrics/hardware/hardwareText";
import { axisScale, lastStep, lastValue, type Columns } from "@/lib/charts/series";
import { percentText, shortTick, tick, percentTick } from "@/lib/charts/valueTexts";
import { decimal, rate, settingNumber } from "@/lib/format";

interface Props {
  team: string;
  run: string;
  metrics: LiveMetrics;
  shown: WindowedMetrics;
  /** More steps are expected. */
  live: boolean;
  /** Whether MFU means anything: the peak it refers to is known. */
  isPeakKnown: boolean;
  /** The number of trainer processes. */
  ranks: number;
  checkpointSteps: readonly number[];
  view: ChartView;
  onView: (view: ChartView) => void;
  /** Opens a comparison with other runs. */
  compare: ReactNode;
}

/** On phones eight charts would push everything else down. */
const TABLET = "(min-width: 680px)";

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
const LEARNING_RATE = [{ label: "learning rate", name: "learning_rate" }] as const;
const NORM = [{ label: "grad norm", name: "grad_norm" }] as const;

/** A run's main charts: loss first and largest, then hardware efficiency. */
export const MetricsPanel = memo(function MetricsPanel({ team, run, metrics, shown, live, isPeakKnown, ranks, checkpointSteps, view, onView, compare }: Props) {
  const { columns: fullColumns, attempts } = metrics;
  const axis = useMemo(() => axisScale(fullColumns, view.x), [fullColumns, view.x]);
  const newest = lastStep(fullColumns);
  const markers = useMemo(() => chartMarkers(attempts, checkpointSteps, axis.at, newest), [attempts, checkpointSteps, axis, newest]);
  const zoom = useZoom({
    axis,
    newest,
    window: view.window,
    isGrowing: live,
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
  if (fullColumns["loss"] === undefined) {
    return live ? (
      <EmptyState title="No metrics yet.">The charts start with the first step.</EmptyState>
    ) : (
      <EmptyState title="No metrics.">This run ended before its first step.</EmptyState>
    );
  }
  const { columns, isPlaceholder } = shown;
  const hasMfu = isPeakKnown && fullColumns["mfu"] !== undefined;
  const shared = { columns, isPlaceholder, zoom, position: axis.at, markers, view };
  return (
    <>
      <ChartControls view={view} onChange={onView}>
        {controls}
      </ChartControls>
      <div className="mb-3 grid grid-cols-[2fr_1fr_1fr] gap-3 max-desk:grid-cols-2 max-tablet:grid-cols-1">
        <div className="grid min-w-0 max-desk:col-span-full">
          <SeriesChart {...shared} title="loss" best="low" series={LOSSES} scale={view.y === "log" ? "log" : "fit"} text={decimal} axisText={tick} />
        </div>
        {hasMfu && (
          <SeriesChart {...shared} title="MFU, %" best="high" series={fullColumns["bf16_mfu"] === undefined ? MFU : BOTH_MFU} scale="zero" text={percentText} axisText={percentTick} />
        )}
        <SeriesChart {...shared} title="tokens/s" best="high" series={SPEED} scale="zero" text={rate} axisText={shortTick} />
        {!hasMfu && (
          <SeriesChart {...shared} title="grad norm" series={NORM} scale="zero" text={decimal} axisText={tick} />
        )}
      </div>
      <div className="-mx-4">
        <Collapsible title="Optimizer" summary={optimizerText(columns)}>
          <div className="grid grid-cols-2 gap-3 max-tablet:grid-cols-1">
            <SeriesChart {...shared} title="learning rate" series={LEARNING_RATE} scale="zero" text={settingNumber} axisText={settingNumber} />
            <SeriesChart {...shared} title="grad norm" series={NORM} scale="zero" text={decimal} axisText={tick} />
          </div>
        </Collapsible>
        {hasHardware(columns) && (
          <Collapsible title="Hardware" summary={hardwareText(columns)} defaultOpen={window.matchMedia(TABLET).matches}>
            <HardwareCharts frame={shared} team={team} run={run} live={live} ranks={ranks} />
          </Collapsible>
        )}
      </div>
    </>
  );
});

/** `learning rate 3e-4, grad norm 0.913` */
function optimizerText(columns: Columns): string {
  const [rate, norm] = [lastValue(columns["learning_rate"]), lastValue(columns["grad_norm"])];
  return [rate === undefined ? [] : `learning rate ${settingNumber(rate)}`, norm === undefined ? [] : `grad norm ${decimal(norm)}`].flat().join(", ");
}
