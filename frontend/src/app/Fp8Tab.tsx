import { useMemo } from "react";
import type { Run } from "@/api/types";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { Fp8Panel } from "@/features/fp8/Fp8Panel";
import type { TensorSearch } from "@/features/fp8/view";
import { marksOf } from "@/features/metrics/marks";
import type { LiveMetrics } from "@/features/metrics/queries";
import type { TensorChoice } from "@/lib/tensors";

interface Props {
  team: string;
  run: Run;
  metrics: LiveMetrics | undefined;
  error: Error | null;
  onRetry: () => void;
  wish: TensorSearch;
  onChoose: (choice: TensorChoice) => void;
}

/** A run's FP8, over steps, with its attempts marked as in the overview. */
export function Fp8Tab({ team, run, metrics, error, onRetry, wish, onChoose }: Props) {
  const attempts = metrics?.attempts;
  const marks = useMemo(() => marksOf(attempts ?? [], [], (step) => step), [attempts]);
  if (metrics === undefined) {
    return error === null ? <Skeleton rows={1} height={280} /> : <ErrorState error={error} onRetry={onRetry} />;
  }
  return <Fp8Panel team={team} run={run} columns={metrics.columns} marks={marks} wish={wish} onChoose={onChoose} />;
}
