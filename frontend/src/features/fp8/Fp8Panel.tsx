import type { Run } from "@/api/types";
import type { ChartMark } from "@/components/chartOptions";
import { EmptyState } from "@/components/EmptyState";
import { RoundingCharts } from "@/features/fp8/RoundingCharts";
import { TensorPanels } from "@/features/fp8/TensorPanels";
import type { TensorSearch } from "@/features/fp8/view";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runProgress";
import type { Columns } from "@/lib/series";
import type { TensorChoice } from "@/lib/tensors";

interface Props {
  team: string;
  run: Run;
  columns: Columns;
  marks: readonly ChartMark[];
  wish: TensorSearch;
  onChoose: (choice: TensorChoice) => void;
}

/** What training in 8 bits does to a run's numbers: in all, and tensor by tensor. */
export function Fp8Panel({ team, run, columns, marks, wish, onChoose }: Props) {
  const recipe = run.spec.precision.fp8;
  if (!recipe) {
    return (
      <EmptyState title="This run does not train in FP8.">
        Its products are {run.spec.precision.kind}; a run of kind fp8 shows here what rounding costs.
      </EmptyState>
    );
  }
  const every = recipe.observe_every_steps;
  const measured = columns["fp8_saturated"]?.steps.at(-1);
  const live = !isFinal(run.state);
  if (measured === undefined) {
    const when = every === 1 ? "Measured every step" : `Measured at step 1 and then every ${count(every)} steps`;
    return (
      <EmptyState title="No measurements yet.">
        {live ? `${when}; first values at step 1.` : `${when}. This run ended at step ${count(run.summary.step)}, before the first.`}
      </EmptyState>
    );
  }
  return (
    <div className="flex flex-col gap-3">
      <p className="text-small text-soft">
        Level {recipe.level}, {recipe.scaling} scaling, {recipe.amax} amax. Measured every{" "}
        {every === 1 ? "step" : `${count(every)} steps`}, last at step {count(measured)}.
      </p>
      <RoundingCharts columns={columns} marks={marks} recipe={recipe} />
      <TensorPanels scaling={recipe.scaling} team={team} run={run.id} live={live} marks={marks} wish={wish} onChoose={onChoose} />
    </div>
  );
}
