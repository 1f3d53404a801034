import { useMemo } from "react";
import type { Run } from "@/api/types";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { ZoomBar } from "@/components/ZoomBar";
import { Fp8Panel } from "@/features/fp8/Fp8Panel";
import type { TensorSearch } from "@/features/fp8/view";
import { marksOf } from "@/features/metrics/marks";
import type { LiveMetrics } from "@/features/metrics/queries";
import { REST_MS, useShown } from "@/features/metrics/useShown";
import { useZoom } from "@/features/metrics/useZoom";
import { isFinal } from "@/lib/runProgress";
import { axisOf, lastStep } from "@/lib/series";
import type { StepWindow } from "@/lib/stepWindow";
import type { TensorChoice } from "@/lib/tensors";
import { useDebounced } from "@/lib/useDebounced";
import { useSettled } from "@/lib/useSettled";

interface Props {
  team: string;
  run: Run;
  metrics: LiveMetrics | undefined;
  error: Error | null;
  onRetry: () => void;
  /** As it stands in the address. */
  window: StepWindow | null;
  onWindow: (window: StepWindow | null) => void;
  wish: TensorSearch;
  onChoose: (choice: TensorChoice) => void;
}

const STEPS = axisOf({}, "step");

/** A run's FP8, over steps, with its attempts marked and its window of steps as in the overview. */
export function Fp8Tab({ team, run, metrics, error, onRetry, window, onWindow, wish, onChoose }: Props) {
  const [chosen, choose] = useSettled(window, onWindow);
  const rested = useDebounced(chosen, REST_MS);
  const shown = useShown(metrics, { team, run: run.id, window: chosen, rested });
  const attempts = metrics?.attempts;
  const marks = useMemo(() => marksOf(attempts ?? [], [], STEPS.at), [attempts]);
  const newest = lastStep(metrics?.columns ?? {});
  const zoom = useZoom({ axis: STEPS, newest, window: chosen, grows: !isFinal(run.state), onWindow: choose });
  if (metrics === undefined || shown === undefined) {
    return error === null ? <Skeleton rows={1} height={280} /> : <ErrorState error={error} onRetry={onRetry} />;
  }
  return (
    <Fp8Panel
      team={team}
      run={run}
      columns={metrics.columns}
      shown={shown}
      marks={marks}
      zoom={zoom}
      zoomBar={<ZoomBar zoom={zoom} error={shown.error} />}
      window={rested}
      wish={wish}
      onChoose={onChoose}
    />
  );
}
