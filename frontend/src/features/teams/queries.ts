import { queryOptions } from "@tanstack/react-query";
import { api, body, WHOLE_LIST } from "@/api/client";
import type { Member } from "@/api/types";

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
      body(await api.GET("/api/v1/teams/{team}/members", { params: { path: { team }, query: WHOLE_LIST }, signal })).items,
  });
}

/** Creates a team, whose owner the signed-in person becomes; for site admins. */
export async function createTeam(slug: string, name: string) {
  return body(await api.POST("/api/v1/teams", { body: { slug, name } }));
}

/** For owners. */
export async function renameTeam(team: string, name: string) {
  return body(await api.PATCH("/api/v1/teams/{team}", { params: { path: { team } }, body: { name } }));
}

/** For owners. */
export async function changeRole(team: string, member: string, role: Member["role"]) {
  return body(await api.PATCH("/api/v1/teams/{team}/members/{member}", { params: { path: { team, member } }, body: { role } }));
}

/** For owners. */
export async function removeMember(team: string, member: string, runs: "keep" | "cancel"): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/members/{member}", { params: { path: { team, member }, query: { runs } } });
}

/** For owners, once all runs have ended. `confirm` repeats the slug. */
export async function deleteTeam(team: string, confirm: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}", { params: { path: { team }, query: { confirm } } });
}

export async function leaveTeam(team: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/members/me", { params: { path: { team } } });
}

/** Pending invitations; for owners. */
export function invitationsQuery(team: string) {
  return queryOptions({
    queryKey: ["team", team, "invitations"],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/invitations", { params: { path: { team }, query: WHOLE_LIST }, signal })).items,
  });
}

export async function invite(team: string, email: string, role: Member["role"]) {
  return body(await api.POST("/api/v1/teams/{team}/invitations", { params: { path: { team } }, body: { email, role } }));
}

export async function revokeInvitation(team: string, invitation: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/invitations/{invitation}", { params: { path: { team, invitation } } });
}

/** Changes a limit of slots and the guaranteed share of it; for site admins. */
export async function setQuota(team: string, device: string, limit: number, share: number) {
  return body(await api.PUT("/api/v1/teams/{team}/quota/{device}", { params: { path: { team, device } }, body: { limit, guaranteed_slots: share } }));
}

/** Changes how many bytes of files the team may store; for site admins. */
export async function setFileLimit(team: string, bytes: number) {
  return body(await api.PUT("/api/v1/teams/{team}/storage", { params: { path: { team } }, body: { limit_bytes: bytes } }));
}

/** Usage of the last `days` days. */
export function usageQuery(team: string, days: number) {
  return queryOptions({
    queryKey: ["usage", team, days],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/usage", { params: { path: { team }, query: { days } }, signal })),
    refetchInterval: 30_000,
  });
}

/** Usage of the last `days` days by day and person. */
export function memberUsageQuery(team: string, days: number) {
  return queryOptions({
    queryKey: ["usage", team, days, "members"],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/teams/{team}/usage/members", { params: { path: { team }, query: { days } }, signal })),
    refetchInterval: 30_000,
  });
}

/** Usage of the last `days` days by day and run. All other figures are sums of these rows. */
export async function runUsage(team: string, days: number) {
  return body(await api.GET("/api/v1/teams/{team}/usage/runs", { params: { path: { team }, query: { days } } }));
}
