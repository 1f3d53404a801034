import { useQuery } from "@tanstack/react-query";
import type { Run } from "@/api/types";
import { Tile } from "@/features/metrics/Tile";
import { computeQuery } from "@/features/metrics/queries";
import { count } from "@/lib/format";

/** Model FLOPs spent so far, in the unit in which trainings are compared. */
export function ComputeTile({ team, run }: { team: string; run: Run }) {
  const { data } = useQuery(computeQuery(team, run));
  const share = run.spec.schedule.steps === 0 ? 0 : run.summary.step / run.spec.schedule.steps;
  return (
    <Tile
      name="compute so far"
      value={data === undefined ? "–" : petaflopDays(share * data.petaflop_days)}
      unit={data === undefined ? "" : "petaFLOP/s-days"}
      note={data === undefined ? "" : `of ${petaflopDays(data.petaflop_days)}; model FLOPs`}
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
