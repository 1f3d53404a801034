import { useQuery } from "@tanstack/react-query";
import { ApiError, sentenceOf } from "@/api/errors";
import { Fold } from "@/components/Fold";
import { MemoryPicture } from "@/features/runs/MemoryPicture";
import { MeshPicture } from "@/features/runs/MeshPicture";
import { planQuery, type SpecJson } from "@/features/runs/queries";
import { TimelinePicture } from "@/features/runs/TimelinePicture";
import { TimelineTable } from "@/features/runs/TimelineTable";
import { count, percent, plural } from "@/lib/format";

interface Props {
  team: string;
  spec: SpecJson;
}

/** What the layout comes to: where each rank stands, what it holds, and who works when; asked anew as the form changes. */
export function LayoutPlan({ team, spec }: Props) {
  const { data: plan, error, isPlaceholderData } = useQuery(planQuery(team, spec));
  if (error !== null) {
    const why = error instanceof ApiError ? (error.problems[0]?.message ?? error.message) : sentenceOf(error);
    return <p className="col-span-full border-t pt-4 text-soft">The layout is drawn once it fits. {why}</p>;
  }
  if (plan === undefined) return <div className="col-span-full h-40 animate-appear rounded-box bg-raised" aria-hidden />;
  const { pipeline, data, tensor, shard, ranks, bubble_fraction: bubble } = plan;
  return (
    <section aria-label="Layout" aria-busy={isPlaceholderData} className="col-span-full flex flex-col gap-4 border-t pt-4">
      <p>
        <span className="font-medium">{plural(ranks.length, "rank")}</span> = pipeline {count(pipeline)} × data {count(data)} × tensor{" "}
        {count(tensor)}
        {shard > 1 && <span className="text-soft">; {plural(shard, "data rank")} share one copy of what ZeRO cuts</span>}
        {isPlaceholderData && <span className="text-soft">; drawn for what stood here before</span>}
      </p>
      <div className="grid grid-cols-2 gap-6 max-tablet:grid-cols-1">
        <MeshPicture plan={plan} />
        <MemoryPicture plan={plan} />
      </div>
      {pipeline > 1 && (
        <div className="flex flex-col gap-2">
          <p className="text-small text-soft">
            {plan.schedule}, {plural(plan.micro_batches, "micro batch", "micro batches")} a step. Ranks wait for each other{" "}
            {percent(bubble)} % of the time{shownPart(plan.timeline, plan.micro_batches)}.
            {plan.stages_are_measured && " Stages are chosen when the run starts, by the measured speed of its ranks; these are for equal ones."}
          </p>
          <TimelinePicture plan={plan} />
          <Fold title="The order as a table">
            <TimelineTable plan={plan} />
          </Fold>
        </div>
      )}
    </section>
  );
}

function shownPart(timeline: readonly (readonly { micro_batch: number }[])[], all: number): string {
  const shown = timeline[0]?.reduce((most, { micro_batch }) => Math.max(most, micro_batch + 1), 0) ?? 0;
  return shown < all ? `; the first ${count(shown)} are drawn` : "";
}
