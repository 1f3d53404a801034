import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

const LIVE_MS = 5_000;
const PAGE = 100;

/** The samples of a run's validations, newest first. */
export function samplesQuery(team: string, run: string, live: boolean) {
  return infiniteQueryOptions({
    queryKey: ["run", team, run, "samples"],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/runs/{run}/samples", {
          params: { path: { team, run }, query: { limit: PAGE, cursor: pageParam ?? undefined } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: ({ state: { data } }) => (live ? LIVE_MS * Math.max(1, data?.pages.length ?? 1) : false),
  });
}
