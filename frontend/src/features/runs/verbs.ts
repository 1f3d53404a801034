/** What people do with one run; what the table does with many is beside it. */
import { api, body } from "@/api/client";
import type { Run, RunEdit } from "@/api/types";
import { isFinal } from "@/lib/runProgress";

/** Whether the API takes a pause: also of a run that stops in order to begin anew, of none that stops for good. */
export function canPause({ state, verdict }: Run): boolean {
  return !isFinal(state) && state !== "paused" && (state !== "stopping" || verdict === "retry");
}

export async function pauseRun(team: string, run: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/pause", { params: { path: { team, run } } }));
}

export async function resumeRun(team: string, run: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/resume", { params: { path: { team, run } } }));
}

/** The tags that a run wears ``now`` after somebody made ``wanted`` of those that it wore ``before``. */
export function retagged(now: readonly string[], before: readonly string[], wanted: readonly string[]): string[] {
  const stay = now.filter((tag) => wanted.includes(tag) || !before.includes(tag));
  return [...new Set([...stay, ...wanted.filter((tag) => !before.includes(tag))])];
}

/** Changes what people call a run; what is left out stays. */
export async function editRun(team: string, run: string, edit: RunEdit): Promise<Run> {
  return body(await api.PATCH("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run } }, body: edit }));
}
