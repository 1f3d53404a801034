import { useMemo } from "react";
import type { Fp8Recipe } from "@/api/types";
import { Chart } from "@/components/charts/Chart";
import type { ChartMarker, ChartScale, ChartZoom } from "@/components/charts/chartOptions";
import { fractionText } from "@/features/fp8/exponentText";
import { HealthNote } from "@/features/fp8/HealthNote";
import { headroomHealth, lostHealth, RECENT_STEPS, roundingHealth, skippedHealth } from "@/features/fp8/fp8Health";
import { count, share } from "@/lib/format";
import { join, lastValue, type Column, type Columns } from "@/lib/charts/series";

interface Props {
  /** Metrics of the full run, for its current values. */
  columns: Columns;
  /** Metrics of the visible steps. */
  shown: { columns: Columns; isPlaceholder: boolean };
  markers: readonly ChartMarker[];
  zoom: ChartZoom;
  recipe: Fp8Recipe;
}

/** The smallest share distinguishable from zero: one value in a hundred million. */
const MIN_SHARE = 1e-8;
const SHARES: ChartScale = { low: -8, high: 0.2, ticks: [-8, -6, -4, -2, 0] };
/** The controller keeps μ between 2⁻¹⁰ and 1. */
const HEADROOMS: ChartScale = { low: -10.4, high: 0.4, ticks: [-10, -8, -6, -4, -2, 0] };

const CLAMPED_TEXT: Record<Fp8Recipe["amax"], string> = {
  current: "Clamped: none, because each scale fits the largest value of the tensor that it scales.",
  delayed: "Clamped: the share of FP8 layers' inputs and output gradients whose scale, which fits the last 16 steps, was too small.",
};

/** The overall cost of rounding to 8 bits: clamped tensors, underflow, lost updates, headroom and skipped steps. */
export function RoundingCharts({ columns, shown, markers, zoom, recipe }: Props) {
  const shares = useLines(shown.columns, ["fp8_saturated", "fp8_underflow"], ["clamped", "underflow"], logShare);
  const lost = useLines(shown.columns, ["fp8_lost_updates"], ["lost"], identity);
  const headroom = useLines(shown.columns, ["fp8_smallest_headroom"], ["μ"], Math.log2);
  const skipped = useLines(shown.columns, ["skipped_steps"], ["skipped"], identity);
  const now = (name: string) => recentMean(columns[name]);
  const [clampedNow, underflowNow, lostNow] = [now("fp8_saturated"), now("fp8_underflow"), now("fp8_lost_updates")];
  const [headroomNow, skippedNow] = [now("fp8_smallest_headroom"), lastValue(columns["skipped_steps"])];
  const shared = { group: "fp8", xName: "step", xText: count, markers, zoom, isPlaceholder: shown.isPlaceholder, height: 148 };
  return (
    <div className="grid grid-cols-2 gap-3 max-desk:grid-cols-1">
      <Chart {...shared} {...shares} title="tensors clamped, values underflowed" yText={shareText} axisText={shareTick} scale={SHARES}>
        <HealthNote
          description={`${CLAMPED_TEXT[recipe.amax]} Underflow: the share of gradient values so small that they became zero.`}
          health={clampedNow === undefined || underflowNow === undefined ? null : roundingHealth(clampedNow, underflowNow, recipe.amax)}
        />
      </Chart>
      <Chart {...shared} {...lost} title="weight updates lost to rounding" yText={share} axisText={share} scale="zero">
        <HealthNote
          description="Weights that should have changed in the step but did not, because the change was smaller than the spacing of their format."
          health={lostNow === undefined ? null : lostHealth(lostNow, recipe.level)}
        />
      </Chart>
      <Chart {...shared} {...headroom} title="smallest headroom μ" yText={fractionText} scale={HEADROOMS}>
        <HealthNote
          description="Every gradient has a factor μ that leaves room below the largest FP8 value. This is the smallest; 1 means that no gradient needed room."
          health={headroomNow === undefined ? null : headroomHealth(headroomNow)}
        />
      </Chart>
      <Chart {...shared} {...skipped} title="skipped steps" yText={count} axisText={integerTick} scale="zero">
        <HealthNote
          description="Steps so far that changed no weights because a gradient was not finite."
          health={skippedNow === undefined ? null : skippedHealth(skippedNow, skippedNow - skippedBefore(columns["skipped_steps"]), recipe.skip_limit)}
        />
      </Chart>
    </div>
  );
}

const RECENT_POINTS = 5;

/** The mean of the last measurements, because a single one says little. */
function recentMean(column: Column | undefined): number | undefined {
  const values = column?.values.slice(-RECENT_POINTS) ?? [];
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The steps that had been skipped before the recent ones. */
function skippedBefore(column: Column | undefined): number {
  const { steps, values } = column ?? { steps: [], values: [] };
  const end = (steps[steps.length - 1] ?? 0) - RECENT_STEPS;
  return values[steps.findLastIndex((step) => step <= end)] ?? 0;
}

/** Some series as chart lines over their common steps. */
function useLines(columns: Columns, names: readonly string[], labels: readonly string[], map: (value: number) => number) {
  const key = names.join();
  const words = labels.join();
  return useMemo(() => {
    const joined = join(key.split(",").map((name) => columns[name]));
    const lines = words.split(",").map((label, index) => ({
      label,
      color: index + 1,
      values: (joined.values[index] ?? []).map((value) => (value === null ? null : map(value))),
    }));
    return { x: joined.steps, lines };
  }, [columns, key, words, map]);
}

function identity(value: number): number {
  return value;
}

function logShare(value: number): number {
  return Math.log10(Math.max(value, MIN_SHARE));
}

function shareText(exponent: number): string {
  return share(exponent <= Math.log10(MIN_SHARE) ? 0 : 10 ** exponent);
}

/** `0 %`, `0.0001 %`, `100 %`: a tick in full, as it is a power of ten. */
function shareTick(exponent: number): string {
  return exponent <= Math.log10(MIN_SHARE) ? "0 %" : `${Number((10 ** (exponent + 2)).toPrecision(1))} %`;
}

function integerTick(value: number): string {
  return Number.isInteger(value) ? count(value) : "";
}
