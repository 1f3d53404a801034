import { useMemo } from "react";
import type { Run } from "@/api/types";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { ZoomBar } from "@/components/charts/ZoomBar";
import { Fp8Panel } from "@/features/fp8/Fp8Panel";
import type { TensorSearch } from "@/features/fp8/tensorSearch";
import { chartMarkers } from "@/features/metrics/charts/chartMarks";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { DEBOUNCE_MS, useWindowedMetrics } from "@/features/metrics/charts/useWindowedMetrics";
import { useZoom } from "@/features/metrics/charts/useZoom";
import { isFinal } from "@/lib/runs/runProgress";
import { axisScale, lastStep } from "@/lib/charts/series";
import type { StepWindow } from "@/lib/charts/stepWindow";
import type { TensorChoice } from "@/features/fp8/tensors";
import { useDebounced } from "@/lib/hooks/useDebounced";
import { useDelayedCommit } from "@/lib/hooks/useDelayedCommit";

interface Props {
  team: string;
  run: Run;
  metrics: LiveMetrics | undefined;
  error: Error | null;
  onRetry: () => void;
  /** As in the address. */
  window: StepWindow | null;
  onWindow: (window: StepWindow | null) => void;
  tensorSearch: TensorSearch;
  onChoose: (choice: TensorChoice) => void;
}

const STEP_AXIS = axisScale({}, "step");

/** A run's FP8 charts over steps, with attempts marked and the same step window as the overview. */
export function Fp8Tab({ team, run, metrics, error, onRetry, window, onWindow, tensorSearch, onChoose }: Props) {
  const [chosenWindow, setWindow] = useDelayedCommit(window, onWindow);
  const debouncedWindow = useDebounced(chosenWindow, DEBOUNCE_MS);
  const shown = useWindowedMetrics(metrics, { team, run: run.id, window: chosenWindow, debouncedWindow });
  const attempts = metrics?.attempts;
  const newest = lastStep(metrics?.columns ?? {});
  const markers = useMemo(() => chartMarkers(attempts ?? [], [], STEP_AXIS.at, newest), [attempts, newest]);
  const zoom = useZoom({ axis: STEP_AXIS, newest, window: chosenWindow, isGrowing: !isFinal(run.state), onWindow: setWindow });
  if (metrics === undefined || shown === undefined) {
    return error === null ? <Skeleton rows={1} height={280} /> : <ErrorState error={error} onRetry={onRetry} />;
  }
  return (
    <Fp8Panel
      team={team}
      run={run}
      columns={metrics.columns}
      shown={shown}
      markers={markers}
      zoom={zoom}
      zoomBar={<ZoomBar zoom={zoom} error={shown.error} />}
      window={debouncedWindow}
      tensorSearch={tensorSearch}
      onChoose={onChoose}
    />
  );
}
