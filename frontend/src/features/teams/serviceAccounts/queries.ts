import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { NewKey } from "@/api/types";

/** The service accounts of a team, with their keys. */
export function serviceAccountsQuery(team: string) {
  return queryOptions({
    queryKey: ["team", team, "service accounts"],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/service-accounts", { params: { path: { team } }, signal })),
  });
}

export async function createServiceAccount(team: string, account: { name: string; role: "viewer" | "editor" }) {
  return body(await api.POST("/api/v1/teams/{team}/service-accounts", { params: { path: { team } }, body: account }));
}

export async function deleteServiceAccount(team: string, account: string, runs: "keep" | "cancel"): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/service-accounts/{account}", { params: { path: { team, account }, query: { runs } } });
}

export async function createServiceKey(team: string, account: string, key: NewKey) {
  return body(await api.POST("/api/v1/teams/{team}/service-accounts/{account}/keys", { params: { path: { team, account } }, body: key }));
}

export async function deleteServiceKey(team: string, account: string, key: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/service-accounts/{account}/keys/{key}", { params: { path: { team, account, key } } });
}
