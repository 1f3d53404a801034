/** One verb for many runs: which runs it is for, and what became of each. */
import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { BulkAction, BulkResult, Run } from "@/api/types";
import { isFinal } from "@/lib/runProgress";

export type BulkVerb = BulkAction["verb"];

const TAKES: Record<BulkVerb, (run: Run) => boolean> = {
  pause: ({ state }) => !isFinal(state) && state !== "paused" && state !== "stopping",
  resume: ({ state }) => state === "paused",
  cancel: ({ state, verdict }) => !isFinal(state) && !(state === "stopping" && verdict === "cancel"),
  delete: ({ state }) => isFinal(state),
  tag: () => true,
  untag: ({ tags }) => tags.length > 0,
};

/** Those of the runs that the verb is for as they stand now. */
export function takenBy(verb: BulkVerb, runs: readonly Run[]): Run[] {
  return runs.filter(TAKES[verb]);
}

export async function sendBulk(team: string, action: BulkAction): Promise<BulkResult[]> {
  return body(await api.POST("/api/v1/teams/{team}/runs/bulk", { params: { path: { team } }, body: action }));
}

/** What deleting a run would free; an error says why it is refused. */
export function freedQuery(team: string, run: string) {
  return queryOptions({
    queryKey: ["run", team, run, "freed"],
    queryFn: async ({ signal }) =>
      body(
        await api.DELETE("/api/v1/teams/{team}/runs/{run}", { params: { path: { team, run }, query: { dry_run: true } }, signal }),
      ),
    retry: false,
    gcTime: 0,
  });
}

const TAGS_APART = /[\s,]+/;

/** `night Week-47` → both, as tags are written. */
export function tagsOf(text: string): string[] {
  return [...new Set(text.toLowerCase().split(TAGS_APART).filter((tag) => tag !== ""))];
}
