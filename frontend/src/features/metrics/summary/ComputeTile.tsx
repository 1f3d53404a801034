import type { Run } from "@/api/types";
import { Tile } from "@/features/metrics/summary/Tile";
import { flopParts } from "@/lib/format";
import { isFinal } from "@/lib/runs/runProgress";

/** Model FLOPs that this run has used so far; those of a fork's parent do not count. */
export function ComputeTile({ run }: { run: Run }) {
  const startStep = run.forked_from?.step ?? 0;
  const fraction = Math.max(0, run.summary.step - startStep) / (run.spec.schedule.steps - startStep);
  const [value, unit] = flopParts(fraction * run.flops, run.flops);
  const isComplete = fraction >= 1;
  return (
    <Tile
      name={isComplete || isFinal(run.state) ? "compute" : "compute so far"}
      value={value}
      unit={unit}
      note={isComplete ? "" : `of ${flopParts(run.flops).join(" ")}`}
      title="Model FLOPs as counted for MFU: 6·N + 12·L·A·T per token; recomputation is not counted twice"
    />
  );
}
