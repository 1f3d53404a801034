import { ApiError, errorMessage } from "@/api/errors";
import type { RunPlan } from "@/api/types";
import { Collapsible } from "@/components/Collapsible";
import { MemoryDiagram } from "@/features/runs/parallelism/MemoryDiagram";
import { MeshDiagram } from "@/features/runs/parallelism/MeshDiagram";
import { TimelineDiagram } from "@/features/runs/parallelism/TimelineDiagram";
import { TimelineTable } from "@/features/runs/parallelism/TimelineTable";
import { count, percent, plural } from "@/lib/format";

interface Props {
  plan: RunPlan | undefined;
  error: Error | null;
  isUpdating: boolean;
  /** The hardware of the plan, if it is not the team's nodes. */
  where?: string;
}

/** The diagrams of a plan, whether or not it fits a joined node. */
export function LayoutDiagrams({ plan, error, isUpdating, where }: Props) {
  if (error !== null) {
    const why = error instanceof ApiError ? (error.problems[0]?.message ?? error.message) : errorMessage(error);
    return <p className="col-span-full border-t pt-4 text-soft">No layout to show yet. {why}</p>;
  }
  if (plan === undefined) return <div className="col-span-full h-40 animate-appear rounded-box bg-raised" aria-hidden />;
  const { pipeline, data, tensor, shard, ranks, bubble_fraction: bubble } = plan;
  return (
    <section aria-label="Layout" aria-busy={isUpdating} className="col-span-full mt-4 flex flex-col gap-4 border-t pt-4">
      <p>
        <span className="font-medium">{plural(ranks.length, "rank")}</span> = pipeline {count(pipeline)} × data {count(data)} × tensor{" "}
        {count(tensor)}
        {shard > 1 && <span className="text-soft">; {plural(shard, "data rank")} per ZeRO shard group</span>}
        {where !== undefined && <span className="text-soft"> on {where}</span>}
        {isUpdating && <span className="text-soft">; updating…</span>}
      </p>
      {plan.export_loaded_by !== "" && <p className="text-small text-soft">{plan.export_loaded_by}</p>}
      <div className="grid grid-cols-2 gap-6 max-tablet:grid-cols-1">
        <MeshDiagram plan={plan} />
        <MemoryDiagram plan={plan} />
      </div>
      {pipeline > 1 && (
        <div className="flex flex-col gap-2">
          <p className="text-small text-soft">
            {plan.schedule}, {plural(plan.micro_batches, "micro batch", "micro batches")} per step. Ranks are idle{" "}
            {percent(bubble)} % of the time{shownMicroBatches(plan.timeline, plan.micro_batches)}.
            {plan.stages_are_measured && " Stages are chosen when the run starts, from the measured speed of its ranks; these assume equal ranks."}
          </p>
          <TimelineDiagram plan={plan} />
          <Collapsible title="Schedule as a table">
            <TimelineTable plan={plan} />
          </Collapsible>
        </div>
      )}
    </section>
  );
}

function shownMicroBatches(timeline: readonly (readonly { micro_batch: number }[])[], all: number): string {
  const shown = timeline[0]?.reduce((most, { micro_batch }) => Math.max(most, micro_batch + 1), 0) ?? 0;
  return shown < all ? `; the first ${count(shown)} are shown` : "";
}
