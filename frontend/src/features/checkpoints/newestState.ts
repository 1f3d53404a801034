import type { Checkpoint } from "@/api/types";

/** The step of the newest checkpoint that a fork can continue from; undefined if there is none. */
export function newestState(checkpoints: readonly Checkpoint[] | undefined): number | undefined {
  const steps = (checkpoints ?? []).filter(({ kind, valid }) => kind === "state" && valid).map(({ step }) => step);
  return steps.length === 0 ? undefined : Math.max(...steps);
}
