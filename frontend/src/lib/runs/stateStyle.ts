import type { RunState } from "@/api/types";
import type { Shape } from "@/components/StateIcon";

interface StateStyle {
  shape: Shape;
  label: string;
  color: string;
}

/** How each run state is shown everywhere. */
export const stateStyle: Record<RunState, StateStyle> = {
  queued: { shape: "hollow-circle", label: "Queued", color: "text-idle" },
  leased: { shape: "half-circle", label: "Starting", color: "text-accent" },
  starting: { shape: "half-circle", label: "Starting", color: "text-accent" },
  running: { shape: "circle", label: "Running", color: "text-accent" },
  completing: { shape: "three-quarter-circle", label: "Finishing", color: "text-accent" },
  stopping: { shape: "hollow-square", label: "Stopping", color: "text-idle" },
  retry_wait: { shape: "retry", label: "Recovering", color: "text-warn" },
  paused: { shape: "bars", label: "Paused", color: "text-idle" },
  succeeded: { shape: "tick", label: "Done", color: "text-good" },
  failed: { shape: "cross", label: "Failed", color: "text-bad" },
  cancelled: { shape: "square", label: "Cancelled", color: "text-idle" },
};

/** All states, in the order of a run's life. */
export const RUN_STATES = Object.keys(stateStyle) as RunState[];
