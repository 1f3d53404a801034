import type { AttemptMark } from "@/api/types";
import type { ChartMarker } from "@/components/charts/chartOptions";

const PLANNED_ENDS: ReadonlySet<string> = new Set(["finished", "saved", "stopped", "cancelled"]);

/** Markers on the x axis: later attempts, the failures before them, the one that ended the run at `newestStep`, and checkpoints. */
export function chartMarkers(
  attempts: readonly AttemptMark[],
  checkpointSteps: readonly number[],
  position: (step: number) => number,
  newestStep: number,
): ChartMarker[] {
  const later = attempts.filter(({ attempt }) => attempt > 1);
  const failed = new Set(attempts.filter(({ reason }) => reason && !PLANNED_ENDS.has(reason)).map(({ attempt }) => attempt));
  return [
    ...[...new Set(checkpointSteps)].map((step) => marker("checkpoint", position(step), "checkpoint")),
    ...later.map(({ attempt, resume_step: step }) => marker("attempt", position(step), `attempt ${attempt}`)),
    ...later
      .filter(({ attempt }) => failed.has(attempt - 1))
      .map(({ attempt, resume_step: step }) => marker("failure", position(step), `attempt ${attempt - 1} failed`)),
    ...attempts
      .slice(-1)
      .filter(({ attempt, ended }) => ended !== null && failed.has(attempt))
      .map(({ attempt }) => marker("failure", position(newestStep), `attempt ${attempt} failed`)),
  ];
}

function marker(kind: ChartMarker["kind"], x: number, label: string): ChartMarker {
  return { kind, x, label };
}
