import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { Node } from "@/api/types";

export const nodesQuery = queryOptions({
  queryKey: ["nodes"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/nodes", { signal })),
  refetchInterval: 5_000,
});

/** The load of a node over the last hours, measured once a minute. */
export const nodeLoadQuery = (node: string, hours: number) =>
  queryOptions({
    queryKey: ["nodes", node, "load", hours],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/nodes/{node}/load", { params: { path: { node }, query: { hours } }, signal })),
    refetchInterval: 60_000,
  });

/** A token for a machine to join with this name: valid once, shown once. */
export async function createJoinToken(name: string) {
  return body(await api.POST("/api/v1/join-tokens", { body: { name } }));
}

/** Lets a node have the slots that it reports now. */
export async function allowSlots({ id, reported_slots: reported }: Node): Promise<Node> {
  const allowed_slots = { cuda: reported["cuda"] ?? null, cpu: reported["cpu"] ?? null };
  return body(await api.PATCH("/api/v1/nodes/{node}", { params: { path: { node: id } }, body: { allowed_slots } }));
}

/** A draining node accepts no new runs; current ones continue. */
export async function drainNode(node: string, draining: boolean): Promise<Node> {
  return body(await api.PATCH("/api/v1/nodes/{node}", { params: { path: { node } }, body: { draining } }));
}

/** Drains a node and moves its runs to other nodes. */
export async function emptyNode(node: string): Promise<Node> {
  return body(await api.PATCH("/api/v1/nodes/{node}", { params: { path: { node } }, body: { draining: true, move_runs: true } }));
}

/** Removes a node without runs, and revokes its token. */
export async function removeNode(node: string): Promise<void> {
  await api.DELETE("/api/v1/nodes/{node}", { params: { path: { node } } });
}

/** Quarantines a node until it passes a self-test, or releases it without one. */
export async function setQuarantined(node: string, quarantined: boolean): Promise<Node> {
  return body(await api.PATCH("/api/v1/nodes/{node}", { params: { path: { node } }, body: { quarantined } }));
}
