import { queryOptions } from "@tanstack/react-query";
import { api, body, WHOLE_LIST } from "@/api/client";
import type { QueuedRun } from "@/api/types";

/** The team's waiting runs, by device and then in the order in which they start. */
export function queueQuery(team: string) {
  return queryOptions({
    queryKey: ["queue", team],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/queue", { params: { path: { team }, query: WHOLE_LIST }, signal })).items,
    refetchInterval: 5_000,
  });
}

/** Lets waiting runs start in this order. They exchange places among themselves. */
export async function reorder(team: string, runs: string[]): Promise<void> {
  await api.PUT("/api/v1/teams/{team}/queue/order", { params: { path: { team } }, body: { runs } });
}

export async function setPriority(team: string, run: string, priority: QueuedRun["priority"]): Promise<void> {
  await api.PATCH("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run } }, body: { priority } });
}
