import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { RunState } from "@/api/types";

/** The groups of the home page. */
export const ACTIVE_STATES: readonly RunState[] = ["running", "completing", "leased", "starting", "stopping"];
export const WAITING_STATES: readonly RunState[] = ["queued", "retry_wait"];
export const PAUSED_STATES: readonly RunState[] = ["paused"];
export const SUCCEEDED_STATES: readonly RunState[] = ["succeeded"];
export const FAILED_STATES: readonly RunState[] = ["failed"];

const LIVE_MS = 2_000;
const ENDED_MS = 10_000;
const MAX_RUNS = 50;
/** The API's limit; each of them may have failed since the last visit. */
const MAX_FAILED = 200;

/** The newest runs in some states; ended runs by when they ended. `next_cursor` is set if there are more. */
export function homeRunsQuery(team: string, state: readonly RunState[]) {
  const hasEnded = state === FAILED_STATES || state === SUCCEEDED_STATES;
  const which = hasEnded ? { sort: "ended" as const, limit: state === FAILED_STATES ? MAX_FAILED : MAX_RUNS } : { limit: MAX_RUNS };
  return queryOptions({
    queryKey: ["runs", team, "home", state],
    queryFn: async ({ signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs", {
          params: { path: { team }, query: { state: [...state], ...which } },
          signal,
        }),
      ),
    refetchInterval: hasEnded ? ENDED_MS : LIVE_MS,
  });
}
