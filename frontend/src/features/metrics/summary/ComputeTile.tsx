import type { Run } from "@/api/types";
import { Tile } from "@/features/metrics/summary/Tile";
import { count } from "@/lib/format";

const PETAFLOP_DAY = 86_400e15;

/** Model FLOPs that this run has used so far, in petaFLOP/s-days; those of a fork's parent do not count. */
export function ComputeTile({ run }: { run: Run }) {
  const startStep = run.forked_from?.step ?? 0;
  const fraction = Math.max(0, run.summary.step - startStep) / (run.spec.schedule.steps - startStep);
  return (
    <Tile
      name="compute so far"
      value={petaflopDays((fraction * run.flops) / PETAFLOP_DAY)}
      unit="petaFLOP/s-days"
      note={`of ${petaflopDays(run.flops / PETAFLOP_DAY)}; model FLOPs`}
      title="Model FLOPs as counted for MFU: 6·N + 12·L·A·T per token; recomputation is not counted twice"
    />
  );
}

/** 12,300 · 1.25 · 0.0312 · 4.1e−7: from a test model to the largest. */
function petaflopDays(value: number): string {
  if (value === 0) return "0";
  if (value >= 100) return count(value);
  if (value >= 0.001) return String(Number(value.toPrecision(3)));
  return value.toExponential(1).replace("-", "−");
}
