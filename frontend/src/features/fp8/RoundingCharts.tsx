import { useMemo } from "react";
import type { Fp8Recipe } from "@/api/types";
import { Chart } from "@/components/Chart";
import type { ChartMark, ChartScale, ChartZoom } from "@/components/chartOptions";
import { HealthNote } from "@/features/fp8/HealthNote";
import { headroomHealth, lostHealth, roundingHealth, skippedHealth } from "@/lib/fp8Health";
import { count, decimal, share } from "@/lib/format";
import { join, last, type Column, type Columns } from "@/lib/series";

interface Props {
  /** Of the whole run, for what is said of it now. */
  columns: Columns;
  /** Of the steps that the charts show. */
  shown: { columns: Columns; coarse: boolean };
  marks: readonly ChartMark[];
  zoom: ChartZoom;
  recipe: Fp8Recipe;
}

/** The least share that is told from none: a single value of a hundred million. */
const LEAST_SHARE = 1e-8;
const SHARES: ChartScale = { low: -8, high: 0.2, ticks: [-8, -6, -4, -2, 0] };
/** The controller keeps μ between 2⁻¹⁰ and 1. */
const HEADROOMS: ChartScale = { low: -10.4, high: 0.4, ticks: [-10, -8, -6, -4, -2, 0] };

/** What rounding to 8 bits costs in all: clamped tensors, flushed and lost values, headroom, skipped steps. */
export function RoundingCharts({ columns, shown, marks, zoom, recipe }: Props) {
  const shares = useLines(shown.columns, ["fp8_saturated", "fp8_flushed"], ["clamped", "flushed"], toShare);
  const lost = useLines(shown.columns, ["fp8_lost_updates"], ["lost"], same);
  const headroom = useLines(shown.columns, ["fp8_smallest_headroom"], ["μ"], Math.log2);
  const skipped = useLines(shown.columns, ["skipped_steps"], ["skipped"], same);
  const now = (name: string) => recent(columns[name]);
  const [clampedNow, flushedNow, lostNow] = [now("fp8_saturated"), now("fp8_flushed"), now("fp8_lost_updates")];
  const [headroomNow, skippedNow] = [now("fp8_smallest_headroom"), last(columns["skipped_steps"])];
  const shared = { group: "fp8", xName: "step", xText: count, marks, zoom, coarse: shown.coarse, height: 148 };
  return (
    <div className="grid grid-cols-2 gap-3 max-desk:grid-cols-1">
      <Chart {...shared} {...shares} title="tensors clamped, values flushed, %" yText={shareText} axisText={shareTick} scale={SHARES}>
        <HealthNote
          shows="Clamped: of the inputs and output gradients of FP8 layers, the tensors that their delayed scale was too small for. Flushed: gradient values so small that they became zero."
          health={clampedNow === undefined || flushedNow === undefined ? null : roundingHealth(clampedNow, flushedNow)}
        />
      </Chart>
      <Chart {...shared} {...lost} title="weight updates lost to rounding" yText={share} axisText={share} scale="zero">
        <HealthNote
          shows="Weights that should have moved in the step and did not, their move being smaller than the spacing of their format."
          health={lostNow === undefined ? null : lostHealth(lostNow, recipe.level)}
        />
      </Chart>
      <Chart {...shared} {...headroom} title="smallest headroom μ" yText={headroomText} axisText={headroomTick} scale={HEADROOMS}>
        <HealthNote
          shows="Every gradient has a factor μ that makes room below the largest code; this is the smallest, and 1 means that none needed room."
          health={headroomNow === undefined ? null : headroomHealth(headroomNow)}
        />
      </Chart>
      <Chart {...shared} {...skipped} title="skipped steps" yText={count} axisText={wholeTick} scale="zero">
        <HealthNote
          shows="Steps since the start that changed no weight, as a gradient was not finite."
          health={skippedNow === undefined ? null : skippedHealth(skippedNow, recipe.skip_limit)}
        />
      </Chart>
    </div>
  );
}

const RECENT = 5;

/** The mean of the last measurements: one alone says little. */
function recent(column: Column | undefined): number | undefined {
  const values = column?.values.slice(-RECENT) ?? [];
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The lines of some series over their common steps. */
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

function same(value: number): number {
  return value;
}

function toShare(value: number): number {
  return Math.log10(Math.max(value, LEAST_SHARE));
}

function shareText(exponent: number): string {
  return share(exponent <= Math.log10(LEAST_SHARE) ? 0 : 10 ** exponent);
}

/** In percent, whose sign the title has. */
function shareTick(exponent: number): string {
  return exponent <= Math.log10(LEAST_SHARE) ? "0" : String(10 ** (exponent + 2));
}

function headroomText(exponent: number): string {
  return exponent === 0 ? "1" : decimal(2 ** exponent);
}

function headroomTick(exponent: number): string {
  return exponent === 0 ? "1" : `1/${2 ** -exponent}`;
}

function wholeTick(value: number): string {
  return Number.isInteger(value) ? count(value) : "";
}
