import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { RunState } from "@/api/types";

/** What the home page tells apart. */
export const AT_WORK: readonly RunState[] = ["running", "completing", "leased", "starting", "stopping"];
export const WAITING: readonly RunState[] = ["queued", "retry_wait", "paused"];
export const FAILED: readonly RunState[] = ["failed"];

const LIVE_MS = 2_000;
const ROWS = 50;
const FAILED_MS = 10_000;
/** As many as the API gives at once: each of them may have failed since one looked. */
const FAILED_ROWS = 200;

/** The newest runs in some states, those that failed by when they did. Where there are more, `next_cursor` is set. */
export function homeRunsQuery(team: string, state: readonly RunState[]) {
  const failed = state === FAILED;
  const which = failed ? { sort: "ended" as const, limit: FAILED_ROWS } : { limit: ROWS };
  return queryOptions({
    queryKey: ["runs", team, "home", state],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs", {
          params: { path: { team }, query: { state: [...state], ...which } },
          signal,
        }),
      ),
    refetchInterval: failed ? FAILED_MS : LIVE_MS,
  });
}
