import type { AttemptMark } from "@/api/types";
import type { ChartMark } from "@/components/chartOptions";

const PLANNED: ReadonlySet<string> = new Set(["finished", "saved", "stopped", "cancelled"]);

/** What happened along the x axis: later attempts, the failures before them, checkpoints. */
export function marksOf(
  attempts: readonly AttemptMark[],
  checkpointSteps: readonly number[],
  position: (step: number) => number,
): ChartMark[] {
  const later = attempts.filter(({ attempt }) => attempt > 1);
  const failed = new Set(attempts.filter(({ reason }) => reason && !PLANNED.has(reason)).map(({ attempt }) => attempt));
  return [
    ...[...new Set(checkpointSteps)].map((step) => mark("checkpoint", position(step), "checkpoint")),
    ...later.map(({ attempt, resume_step: step }) => mark("attempt", position(step), `attempt ${attempt}`)),
    ...later
      .filter(({ attempt }) => failed.has(attempt - 1))
      .map(({ attempt, resume_step: step }) => mark("failure", position(step), `attempt ${attempt - 1} failed`)),
  ];
}

function mark(kind: ChartMark["kind"], x: number, label: string): ChartMark {
  return { kind, x, label };
}
