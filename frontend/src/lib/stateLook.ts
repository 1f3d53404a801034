import type { RunState } from "@/api/types";
import type { Shape } from "@/components/StateIcon";

interface Look {
  shape: Shape;
  word: string;
  color: string;
}

/** How each state of a run is shown everywhere. */
export const stateLook: Record<RunState, Look> = {
  queued: { shape: "hollow-circle", word: "Waiting", color: "text-idle" },
  leased: { shape: "half-circle", word: "Starting", color: "text-accent" },
  starting: { shape: "half-circle", word: "Starting", color: "text-accent" },
  running: { shape: "circle", word: "Running", color: "text-accent" },
  completing: { shape: "three-quarter-circle", word: "Finishing", color: "text-accent" },
  stopping: { shape: "hollow-square", word: "Stopping", color: "text-idle" },
  retry_wait: { shape: "retry", word: "Recovering", color: "text-warn" },
  paused: { shape: "bars", word: "Paused", color: "text-idle" },
  succeeded: { shape: "tick", word: "Done", color: "text-good" },
  failed: { shape: "cross", word: "Failed", color: "text-bad" },
  cancelled: { shape: "square", word: "Cancelled", color: "text-idle" },
};

/** All states, in the order of a run's life. */
export const RUN_STATES = Object.keys(stateLook) as RunState[];
