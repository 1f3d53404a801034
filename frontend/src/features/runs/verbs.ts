/** What people do with one run; what the table does with many is beside it. */
import { api, body } from "@/api/client";
import type { Run, RunEdit } from "@/api/types";

export async function pauseRun(team: string, run: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/pause", { params: { path: { team, run } } }));
}

export async function resumeRun(team: string, run: string): Promise<Run> {
  return body(await api.POST("/api/v1/teams/{team}/runs/{run}/resume", { params: { path: { team, run } } }));
}

/** Changes what people call a run; what is left out stays. */
export async function editRun(team: string, run: string, edit: RunEdit): Promise<Run> {
  return body(await api.PATCH("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run } }, body: edit }));
}
