import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import type { ChartMark, ChartZoom } from "@/components/chartOptions";
import { EmptyState } from "@/components/EmptyState";
import { RoundingCharts } from "@/features/fp8/RoundingCharts";
import { TensorPanels } from "@/features/fp8/TensorPanels";
import type { TensorSearch } from "@/features/fp8/view";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runProgress";
import type { Columns } from "@/lib/series";
import type { StepWindow } from "@/lib/stepWindow";
import type { TensorChoice } from "@/lib/tensors";

interface Props {
  team: string;
  run: Run;
  /** Of the whole run, for what is said of it now. */
  columns: Columns;
  /** Of the steps that the charts show. */
  shown: { columns: Columns; coarse: boolean };
  marks: readonly ChartMark[];
  zoom: ChartZoom;
  zoomBar: ReactNode;
  window: StepWindow | null;
  wish: TensorSearch;
  onChoose: (choice: TensorChoice) => void;
}

/** What training in 8 bits does to a run's numbers: in all, and tensor by tensor. */
export function Fp8Panel({ team, run, columns, shown, marks, zoom, zoomBar, window, wish, onChoose }: Props) {
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
      {zoomBar}
      <RoundingCharts columns={columns} shown={shown} marks={marks} zoom={zoom} recipe={recipe} />
      <TensorPanels
        scaling={recipe.scaling}
        tensors={{ team, run: run.id, live, window, newest: measured }}
        marks={marks}
        zoom={zoom}
        wish={wish}
        onChoose={onChoose}
      />
    </div>
  );
}
