import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { allItems } from "@/api/allItems";
import { api, body, WHOLE_LIST } from "@/api/client";
import type { Checkpoint, FreedSpace, Retention, RetentionResult } from "@/api/types";

const LIVE_MS = 5_000;
const PAGE = 100;

export function checkpointsQuery(team: string, run: string, live: boolean) {
  return queryOptions({
    queryKey: ["run", team, run, "checkpoints"],
    queryFn: ({ signal }) =>
      allItems(async (cursor) =>
        body(await api.GET("/api/v1/teams/{team}/runs/{run}/checkpoints", { params: { path: { team, run }, query: { cursor, ...WHOLE_LIST } }, signal })),
      ),
    refetchInterval: live ? LIVE_MS : false,
  });
}

/** The filter of the team's checkpoints, as in the address. */
export interface CheckpointFilter {
  content?: Checkpoint["kind"];
  pinned?: true;
}

export function parseCheckpointFilter({ content, pinned }: Record<string, unknown>): CheckpointFilter {
  return { ...(content === "state" || content === "export" ? { content } : {}), ...(pinned === true ? { pinned } : {}) };
}

export function teamCheckpointsQuery(team: string, { content: kind, pinned }: CheckpointFilter) {
  return infiniteQueryOptions({
    queryKey: ["checkpoints", team, { kind, pinned }],
    queryFn: async ({ pageParam, signal }) =>
      body(
        await api.GET("/api/v1/teams/{team}/checkpoints", {
          params: { path: { team }, query: { kind, pinned, order: "run", limit: PAGE, cursor: pageParam ?? undefined } },
          signal,
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? null,
    refetchInterval: ({ state: { data } }) => LIVE_MS * Math.max(1, data?.pages.length ?? 1),
  });
}

/** Key prefixes of all queries that list a team's checkpoints. */
export function checkpointKeys(team: string, run: string) {
  return [["checkpoints", team], ["run", team, run, "checkpoints"], ["team", team]];
}

export async function pinCheckpoint(team: string, { run, id }: Checkpoint, pinned: boolean): Promise<Checkpoint> {
  return body(
    await api.PATCH("/api/v1/teams/{team}/runs/{run}/checkpoints/{checkpoint}", {
      params: { path: { team, run, checkpoint: id } },
      body: { pinned },
    }),
  );
}

/** The space that deleting a checkpoint would free; the error says why it cannot be deleted. */
export function freedSpaceQuery(team: string, { run, id }: Checkpoint) {
  return queryOptions({
    queryKey: ["run", team, run, "checkpoint", id, "freed"],
    queryFn: () => deleteCheckpoint(team, run, id, true),
    retry: false,
    gcTime: 0,
  });
}

export async function deleteCheckpoint(team: string, run: string, checkpoint: string, dryRun: boolean): Promise<FreedSpace> {
  return body(
    await api.DELETE("/api/v1/teams/{team}/runs/{run}/checkpoints/{checkpoint}", {
      params: { path: { team, run, checkpoint }, query: { dry_run: dryRun } },
    }),
  );
}

export async function applyRetention(team: string, retention: Retention): Promise<RetentionResult> {
  return body(await api.POST("/api/v1/teams/{team}/checkpoints/retention", { params: { path: { team } }, body: retention }));
}

/** Address of a checkpoint as one .tar. */
export function archiveUrl(team: string, run: string, checkpoint: string): string {
  return `/api/v1/teams/${encodeURIComponent(team)}/runs/${encodeURIComponent(run)}/checkpoints/${encodeURIComponent(checkpoint)}/archive`;
}
