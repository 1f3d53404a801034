import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";

export function teamQuery(team: string) {
  return queryOptions({
    queryKey: ["team", team],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}", { params: { path: { team } }, signal })),
  });
}

export function membersQuery(team: string) {
  return queryOptions({
    queryKey: ["team", team, "members"],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/members", { params: { path: { team } }, signal })),
  });
}

/** What was used on the last `days` days. */
export function usageQuery(team: string, days: number) {
  return queryOptions({
    queryKey: ["usage", team, days],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/usage", { params: { path: { team }, query: { days } }, signal })),
    refetchInterval: 30_000,
  });
}
