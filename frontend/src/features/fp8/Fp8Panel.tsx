import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import type { ChartMarker, ChartZoom } from "@/components/charts/chartOptions";
import { EmptyState } from "@/components/EmptyState";
import { RoundingCharts } from "@/features/fp8/RoundingCharts";
import { TensorPanels } from "@/features/fp8/TensorPanels";
import type { TensorSearch } from "@/features/fp8/tensorSearch";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runs/runProgress";
import type { Columns } from "@/lib/charts/series";
import type { StepWindow } from "@/lib/charts/stepWindow";
import type { TensorChoice } from "@/features/fp8/tensors";

interface Props {
  team: string;
  run: Run;
  /** Metrics of the full run, for its current values. */
  columns: Columns;
  /** Metrics of the visible steps. */
  shown: { columns: Columns; isPlaceholder: boolean };
  markers: readonly ChartMarker[];
  zoom: ChartZoom;
  zoomBar: ReactNode;
  window: StepWindow | null;
  tensorSearch: TensorSearch;
  onChoose: (choice: TensorChoice) => void;
}

/** The effects of FP8 training: overall, and per tensor. */
export function Fp8Panel({ team, run, columns, shown, markers, zoom, zoomBar, window, tensorSearch, onChoose }: Props) {
  const recipe = run.spec.precision.fp8;
  if (!recipe) {
    return (
      <EmptyState title="This run does not train in FP8.">
        It multiplies in {run.spec.precision.kind}. A run with precision fp8 shows here what rounding costs.
      </EmptyState>
    );
  }
  const every = recipe.observe_every_steps;
  const lastMeasured = columns["fp8_saturated"]?.steps.at(-1);
  const live = !isFinal(run.state);
  if (lastMeasured === undefined) {
    const when = every === 1 ? "Measured every step" : `Measured at step 1 and then every ${count(every)} steps`;
    return (
      <EmptyState title="No measurements yet.">
        {live ? `${when}; the first values appear after step 1.` : `${when}. This run ended at step ${count(run.summary.step)}, before the first measurement.`}
      </EmptyState>
    );
  }
  return (
    <div className="flex flex-col gap-3">
      <p className="text-small text-soft">
        Level {recipe.level}, {recipe.scaling} scaling, {recipe.amax} amax. Measured every{" "}
        {every === 1 ? "step" : `${count(every)} steps`}, last at step {count(lastMeasured)}.
      </p>
      {zoomBar}
      <RoundingCharts columns={columns} shown={shown} markers={markers} zoom={zoom} recipe={recipe} />
      <TensorPanels
        scaling={recipe.scaling}
        tensors={{ team, run: run.id, live, window, newest: lastMeasured }}
        markers={markers}
        zoom={zoom}
        tensorSearch={tensorSearch}
        onChoose={onChoose}
      />
    </div>
  );
}
