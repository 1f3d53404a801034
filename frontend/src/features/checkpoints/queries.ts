import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

export function checkpointsQuery(team: string, run: string, live: boolean) {
  return queryOptions({
    queryKey: ["run", team, run, "checkpoints"],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/runs/{run}/checkpoints", { params: { path: { team, run } }, signal })),
    refetchInterval: live ? 5_000 : false,
  });
}

/** Where a checkpoint is downloaded as one .tar. */
export function archiveUrl(team: string, run: string, checkpoint: string): string {
  return `/api/v1/teams/${encodeURIComponent(team)}/runs/${encodeURIComponent(run)}/checkpoints/${encodeURIComponent(checkpoint)}/archive`;
}
