import type { Run } from "@/api/types";
import { Tile } from "@/features/metrics/Tile";
import { count } from "@/lib/format";

const PETAFLOP_DAY = 86_400e15;

/** Model FLOPs that this run has spent, in the unit in which trainings are compared; what a fork's parent spent is none of them. */
export function ComputeTile({ run }: { run: Run }) {
  const begun = run.forked_from?.step ?? 0;
  const share = Math.max(0, run.summary.step - begun) / (run.spec.schedule.steps - begun);
  return (
    <Tile
      name="compute so far"
      value={petaflopDays((share * run.flops) / PETAFLOP_DAY)}
      unit="petaFLOP/s-days"
      note={`of ${petaflopDays(run.flops / PETAFLOP_DAY)}; model FLOPs`}
      title="Model FLOPs as MFU counts them: 6·N + 12·L·A·T a token, where nothing that is computed twice counts twice"
    />
  );
}

/** 12,300 · 1.25 · 0.0312 · 4.1e−7: from a test's model to the largest. */
function petaflopDays(value: number): string {
  if (value === 0) return "0";
  if (value >= 100) return count(value);
  if (value >= 0.001) return String(Number(value.toPrecision(3)));
  return value.toExponential(1).replace("-", "−");
}
