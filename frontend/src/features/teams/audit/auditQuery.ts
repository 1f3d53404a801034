import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

/** The team's audit log, newest first; for owners. */
export function auditQuery(team: string, words: string) {
  return infiniteQueryOptions({
    queryKey: ["team", team, "audit", words],
    initialPageParam: null as string | null,
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/audit", {
          params: { path: { team }, query: { q: words, ...(pageParam === null ? {} : { cursor: pageParam }) } },
          signal,
        }),
      ),
    getNextPageParam: ({ next_cursor: next }) => next ?? null,
  });
}
