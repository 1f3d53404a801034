import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { RunState } from "@/api/types";

/** What the home page tells apart. */
export const AT_WORK: readonly RunState[] = ["running", "completing", "leased", "starting", "stopping"];
export const WAITING: readonly RunState[] = ["queued", "retry_wait", "paused"];
export const FAILED: readonly RunState[] = ["failed"];

const LIVE_MS = 2_000;

/** The newest runs in some states. */
export function homeRunsQuery(team: string, state: readonly RunState[]) {
  return queryOptions({
    queryKey: ["runs", team, "home", state],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs", {
          params: { path: { team }, query: { state: [...state], limit: 50 } },
          signal,
        }),
      ),
    refetchInterval: LIVE_MS,
  });
}
