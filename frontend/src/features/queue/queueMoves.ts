/** Which waiting runs a person can move, and where to. */
import type { Me, QueuedRun } from "@/api/types";

type Role = Me["teams"][number]["role"];

export const PRIORITIES = ["low", "normal", "high"] as const satisfies readonly QueuedRun["priority"][];

/** The priorities that a member can assign, and the current one of the run. */
export function prioritiesOf(role: Role, present: QueuedRun["priority"]): QueuedRun["priority"][] {
  return PRIORITIES.filter((priority) => priority !== "high" || role === "owner" || present === "high");
}

/** Owners move every run, editors their own. */
export function canMove(role: Role, run: QueuedRun): boolean {
  return role === "owner" || (role === "editor" && run.mine);
}

/**
 * The order to request so that a run changes places with the nearest one that the person can move too, before or
 * after it; null if there is none of the same priority and device.
 */
export function swapWith(queue: readonly QueuedRun[], run: QueuedRun, direction: "up" | "down", role: Role): [string, string] | null {
  const movable = queue.filter((one) => one.device === run.device && one.priority === run.priority && canMove(role, one));
  const index = movable.findIndex(({ id }) => id === run.id);
  if (index < 0) return null;
  const other = movable[direction === "up" ? index - 1 : index + 1];
  if (other === undefined) return null;
  return direction === "up" ? [run.id, other.id] : [other.id, run.id];
}
