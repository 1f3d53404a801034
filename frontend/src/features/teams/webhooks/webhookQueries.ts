import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { components } from "@/api/schema";

export type WebhookEvent = components["schemas"]["WebhookEvent"];

/** The events to choose from, in the order of the form. */
export const EVENT_LABELS: Record<Exclude<WebhookEvent, "test">, string> = {
  "run.ended": "A run is done or was cancelled",
  "run.failed": "A run failed",
  "run.paused_by_limit": "A run was paused at a limit",
  "limit.reached": "80 or 100 % of a limit is used",
  "node.quarantined": "A node that the team's runs used went into quarantine",
};

export function eventLabel(event: WebhookEvent): string {
  return event === "test" ? "Test" : EVENT_LABELS[event];
}

/** `A run failed; 80 or 100 % of a limit is used` */
export function eventsText(events: readonly WebhookEvent[]): string {
  const isAll = Object.keys(EVENT_LABELS).every((event) => events.some((chosen) => chosen === event));
  return isAll ? "All events" : events.map(eventLabel).join("; ");
}

/** For owners. */
export function webhooksQuery(team: string) {
  return queryOptions({
    queryKey: ["team", team, "webhooks"],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/webhooks", { params: { path: { team } }, signal })),
    refetchInterval: 10_000,
  });
}

export async function createWebhook(team: string, url: string, events: WebhookEvent[]) {
  return body(await api.POST("/api/v1/teams/{team}/webhooks", { params: { path: { team } }, body: { url, events } }));
}

export async function deleteWebhook(team: string, webhook: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/webhooks/{webhook}", { params: { path: { team, webhook } } });
}

export async function testWebhook(team: string, webhook: string) {
  return body(await api.POST("/api/v1/teams/{team}/webhooks/{webhook}/test", { params: { path: { team, webhook } } }));
}
