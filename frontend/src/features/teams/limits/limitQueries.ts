import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { MemberLimits, TeamLimits } from "@/api/types";

/** The team's limits besides its slots, and how much of them is used. */
export function limitsQuery(team: string) {
  return queryOptions({
    queryKey: ["team", team, "limits"],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/limits", { params: { path: { team } }, signal })),
    refetchInterval: 30_000,
  });
}

export function memberLimitsQuery(team: string) {
  return queryOptions({
    queryKey: ["team", team, "limits", "members"],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/limits/members", { params: { path: { team } }, signal })),
  });
}

/** For site admins. */
export async function setTeamLimits(team: string, limits: TeamLimits) {
  return body(await api.PUT("/api/v1/teams/{team}/limits", { params: { path: { team } }, body: limits }));
}

/** For owners. */
export async function setMemberLimits(team: string, member: string, limits: MemberLimits) {
  return body(await api.PUT("/api/v1/teams/{team}/limits/members/{member}", { params: { path: { team, member } }, body: limits }));
}
