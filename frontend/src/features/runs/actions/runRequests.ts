/** Actions on one run; those on many are in `bulkRequests.ts`. */
import { api, body } from "@/api/client";
import type { Run, RunEdit } from "@/api/types";
import { isFinal } from "@/lib/runs/runProgress";

/** Whether the run can be paused. A stopping run can only if it stops in order to retry. */
export function canPause({ state, verdict }: Run): boolean {
  return !isFinal(state) && state !== "paused" && (state !== "stopping" || verdict === "retry" || verdict === "move");
}

export async function pauseRun(team: string, run: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/pause", { params: { path: { team, run } } }));
}

export async function resumeRun(team: string, run: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/resume", { params: { path: { team, run } } }));
}

/** The nodes that the run can be moved off: those that it is on, unless it is about to leave them. */
export function leavableNodes({ state, nodes }: Run): readonly string[] {
  return isFinal(state) || state === "stopping" ? [] : nodes;
}

export async function moveRun(team: string, run: string, node: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/move", { params: { path: { team, run } }, body: { node } }));
}

/** Applies a user's edit of the tags, from ``before`` to ``wanted``, to the run's tags ``now``. */
export function mergeTags(now: readonly string[], before: readonly string[], wanted: readonly string[]): string[] {
  const kept = now.filter((tag) => wanted.includes(tag) || !before.includes(tag));
  return [...new Set([...kept, ...wanted.filter((tag) => !before.includes(tag))])];
}

/** Changes a run's name, tags or notes; omitted fields stay unchanged. */
export async function editRun(team: string, run: string, edit: RunEdit): Promise<Run> {
  return body(await api.PATCH("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run } }, body: edit }));
}
