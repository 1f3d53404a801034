import type { Run } from "@/api/types";
import { ComputeTile } from "@/features/metrics/summary/ComputeTile";
import { Tile } from "@/features/metrics/summary/Tile";
import { bytesParts, count, decimal, percent, plural, rate, shortTime } from "@/lib/format";
import { isFinal } from "@/lib/runs/runProgress";
import { isComplete, lastValue, type Columns } from "@/lib/charts/series";

/** A run's key metrics: health, speed and cost. */
export function SummaryTiles({ run, columns }: { run: Run; columns: Columns }) {
  const latest = (name: string) => lastValue(columns[name]) ?? run.summary.values[name];
  // A mean of recent steps; until the server has one, the last step.
  const recent = (name: string) => run.summary.values[name] ?? lastValue(columns[name]);
  const speed = recent("tokens_per_second");
  const mfuUnknown = run.summary.mfu_unknown;
  const mfu = mfuUnknown ? undefined : recent("mfu");
  const seconds = recent("seconds");
  const norm = latest("grad_norm");
  const loss = latest("loss");
  const [memory, memoryUnit] = memoryParts(latest("memory_bytes"));
  const [peak, bf16Peak] = peaksOf(run);
  const bf16 = recent("bf16_mfu");
  const hfu = recent("hfu");
  return (
    <dl className="panel mb-6 grid grid-cols-6 overflow-hidden max-desk:grid-cols-3 max-tablet:grid-cols-2">
      <Tile name="loss" value={text(loss, decimal)} unit="" {...validationNote(run, columns)} />
      <Tile
        name="MFU"
        value={text(mfu, percent)}
        unit={mfu === undefined ? "" : "%"}
        note={mfuUnknown ? "peak not known" : mfuNote(peak)}
        more={mfu === undefined ? undefined : moreOnMfu(bf16Peak ? bf16 : undefined, hfu === mfu ? undefined : hfu, meanNote(run, "mfu", columns))}
        title={mfuUnknown ?? mfuTitle(peak, bf16Peak)}
      />
      <Tile
        name="throughput"
        value={text(speed, rate)}
        unit={speed === undefined ? "" : "tokens/s"}
        note={seconds === undefined ? "" : `${shortTime(seconds)} per step`}
        more={meanNote(run, "tokens_per_second", columns)}
      />
      <Tile name="grad norm" value={text(norm, decimal)} unit="" {...clipNote(run, columns)} />
      <Tile name="memory" value={memory} unit={memoryUnit} note={slotsNote(run)} />
      <ComputeTile run={run} />
    </dl>
  );
}

function text(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? "–" : format(value);
}

function memoryParts(value: number | undefined): [string, string] {
  return value === undefined ? ["–", ""] : bytesParts(value);
}

/** The peak that MFU refers to; only the BF16 peak if FP8 matmuls are no faster, as on a CPU. */
function peaksOf({ summary: { peak_name: peak, bf16_peak_name: bf16Peak } }: Run): (string | null | undefined)[] {
  return peak && bf16Peak && peak.replace(/^FP8/, "BF16") === bf16Peak ? [bf16Peak] : [peak, bf16Peak];
}

/** `of BF16 peak 989 TFLOP/s`; the tooltip has the device, and whether the peak was measured. */
function mfuNote(peak: string | null | undefined): string {
  return peak ? `of ${peak.replace(/ of .*/, "").replace(" measured", "")}` : "";
}

function moreOnMfu(bf16: number | undefined, hfu: number | undefined, mean: string | undefined): string | undefined {
  const parts = [bf16 === undefined ? "" : `${percent(bf16)} % of BF16 peak`, hfu === undefined ? "" : `HFU ${percent(hfu)} %`, mean ?? ""].filter(Boolean);
  return parts.length === 0 ? undefined : parts.join(", ");
}

function mfuTitle(peak: string | null | undefined, bf16Peak: string | null | undefined): string | undefined {
  const peaks = [peak, bf16Peak].filter(Boolean).map((name) => `of ${name}`);
  return peaks.length === 0 ? undefined : peaks.join("; ");
}

/** The number of steps that the server's speeds are a mean of, with less weight on the older ones. */
const MEAN_STEPS = 20;

/** Which steps a speed is the mean of; undefined if it is the last step's, as of runs that ended under older versions. */
function meanNote({ summary, forked_from: origin }: Run, name: string, columns: Columns): string | undefined {
  const steps = summary.step - (origin?.step ?? 0);
  const value = summary.values[name];
  if (value === undefined || steps < 2 || value === lastValue(columns[name])) return undefined;
  return steps < MEAN_STEPS ? `mean of ${plural(steps, "step")}` : `mean of about ${MEAN_STEPS} steps`;
}

interface Note {
  note: string;
  isWarning?: boolean;
}

function validationNote(run: Run, columns: Columns): Note {
  const { steps, values } = columns["validation_loss"] ?? { steps: [], values: [] };
  const newest = values[values.length - 1];
  if (newest === undefined) {
    const loading = columns["loss"] === undefined && run.summary.step > 0;
    if (loading) return { note: "" };
    return { note: isFinal(run.state) ? "not validated" : "not validated yet" };
  }
  const best = Math.min(...values);
  if (newest > BEST_IS_FAR * best) {
    return { note: `validation ${decimal(newest)}, best ${decimal(best)} at step ${count(steps[values.indexOf(best)] ?? 0)}`, isWarning: true };
  }
  const trend = trendOf(values);
  return { note: `validation ${decimal(newest)}${trend === null ? "" : `, ${trend}`}` };
}

/** Above this multiple of the best validation loss, the newest one is more than noise: the run overfits or diverges. */
const BEST_IS_FAR = 1.05;

/** Two points say nothing: only a direction that the last four measurements share is named. */
function trendOf(values: readonly number[]): "falling" | "rising" | null {
  const last = values.slice(-TREND_POINTS);
  if (last.length < TREND_POINTS) return null;
  const goes = (way: (change: number) => boolean) => last.slice(1).every((value, index) => way(value - (last[index] ?? NaN)));
  if (goes((change) => change < 0)) return "falling";
  return goes((change) => change > 0) ? "rising" : null;
}

const TREND_POINTS = 4;

/** Above this fraction of clipped steps, clipping limits the training as a whole instead of rare spikes. */
const MOSTLY_CLIPPED = 0.5;

function clipNote(run: Run, columns: Columns): Note {
  const limit = run.spec.optimizer.clip_norm;
  const norms = columns["grad_norm"];
  if (limit === null) return { note: "not clipped" };
  // A downsampled series holds only extremes, so the share of clipped steps is unknown.
  if (norms === undefined || !isComplete(norms)) return { note: `clipped at ${limit}` };
  const { values } = norms;
  const clipped = values.filter((value) => value > limit).length / values.length;
  return { note: `clipped ${(clipped * 100).toFixed(0)} % of steps`, isWarning: clipped > MOSTLY_CLIPPED };
}

function slotsNote(run: Run): string {
  const { slots_per_node: slots } = run.spec.resources;
  const nodes = run.nodes.length || run.spec.resources.nodes;
  const where = run.nodes.join(", ");
  return `${plural(slots * nodes, "slot")}${where === "" ? "" : ` on ${where}`}`;
}
