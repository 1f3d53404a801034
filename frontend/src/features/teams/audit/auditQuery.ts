import { infiniteQueryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

/** The audit log of a team, for its owners, or of the site (null), for site admins; newest first. */
export function auditQuery(team: string | null, words: string) {
  return infiniteQueryOptions({
    queryKey: [...(team === null ? ["site"] : ["team", team]), "audit", words],
    initialPageParam: null as string | null,
    queryFn: async ({ pageParam, signal }) => {
      const query = { q: words, ...(pageParam === null ? {} : { cursor: pageParam }) };
      return body(
        team === null
          ? await api.GET("/api/v1/audit", { params: { query }, signal })
          : await api.GET("/api/v1/teams/{team}/audit", { params: { path: { team }, query }, signal }),
      );
    },
    getNextPageParam: ({ next_cursor: next }) => next ?? null,
  });
}
