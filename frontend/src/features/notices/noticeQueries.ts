import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { components } from "@/api/schema";

export type Notice = components["schemas"]["Notice"];
export type NoticeKind = components["schemas"]["NoticeKind"];
export type NoticeChoice = components["schemas"]["NoticeChoice"];

/** The kinds, in the order of the form. */
export const KIND_LABELS: Record<NoticeKind, string> = {
  "run.ended": "Your run is done or was cancelled",
  "run.failed": "Your run failed",
  "run.paused_by_limit": "Your run was paused at a limit",
  "limit.reached": "80 or 100 % of a limit is used",
  "node.quarantined": "A node that your teams' runs used went into quarantine",
};

/** All notices that are kept, newest first. */
export const noticesQuery = queryOptions({
  queryKey: ["me", "notices", "list"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/me/notices", { params: { query: { limit: 200 } }, signal })),
  refetchInterval: 15_000,
});

/** The number of unread notices, which every page shows. */
export const unreadQuery = queryOptions({
  queryKey: ["me", "notices", "unread"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/me/notices", { params: { query: { limit: 1 } }, signal })),
  select: ({ unread }) => unread,
  refetchInterval: 15_000,
});

/** Without ids, all of them. */
export async function markRead(ids: string[] | null): Promise<void> {
  await api.POST("/api/v1/me/notices/read", { body: { ids } });
}

export const noticeSettingsQuery = queryOptions({
  queryKey: ["me", "notices", "settings"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/me/notices/settings", { signal })),
});

export async function chooseNotices(choice: NoticeChoice) {
  return body(await api.PUT("/api/v1/me/notices/settings", { body: { choices: [choice] } }));
}
