/** One verb for many runs: which runs it is for, and what became of each. */
import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { ApiError, sentenceOf } from "@/api/errors";
import type { BulkAction, BulkResult, Freed, Run } from "@/api/types";
import { canPause } from "@/features/runs/verbs";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runProgress";

export type BulkVerb = BulkAction["verb"];

const TAKES: Record<BulkVerb, (run: Run) => boolean> = {
  pause: canPause,
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

/** The API takes no more runs in one request. */
const MOST_AT_ONCE = 200;

/** What became of each run. More than one request takes go in several, one after another. */
export async function sendBulk(team: string, action: BulkAction): Promise<BulkResult[]> {
  const results: BulkResult[] = [];
  for (let from = 0; from < action.runs.length; from += MOST_AT_ONCE) {
    const part = { ...action, runs: action.runs.slice(from, from + MOST_AT_ONCE) };
    try {
      results.push(...body(await api.POST("/api/v1/teams/{team}/runs/bulk", { params: { path: { team } }, body: part })));
    } catch (error) {
      if (from === 0) throw error;
      throw new Error(`${count(from)} of ${count(action.runs.length)} runs were asked, then it stopped: ${sentenceOf(error)}`, { cause: error });
    }
  }
  return results;
}

/** So few that the page's own requests find a connection beside them. */
const COUNTED_AT_ONCE = 4;

/** What deleting each of these runs would free, or why it is refused. */
export function freedQuery(team: string, runs: readonly string[]) {
  return queryOptions({
    queryKey: ["freed", team, runs],
    queryFn: async ({ signal }) => {
      const answers = new Map<string, Freed | ApiError>();
      const left = [...runs];
      const countOn = async () => {
        for (let run = left.shift(); run !== undefined; run = left.shift()) answers.set(run, await freedBy(team, run, signal));
      };
      await Promise.all(Array.from({ length: COUNTED_AT_ONCE }, countOn));
      return answers;
    },
    retry: false,
    // Once for each time that it is asked.
    staleTime: Infinity,
    gcTime: 0,
  });
}

/** It cannot be deleted as it stands, or is gone: other errors speak of the asking, not of the run. */
const STAYS: ReadonlySet<number> = new Set([404, 409]);

async function freedBy(team: string, run: string, signal: AbortSignal): Promise<Freed | ApiError> {
  try {
    const params = { path: { team, run }, query: { dry_run: true } };
    return body(await api.DELETE("/api/v1/teams/{team}/runs/{run}", { params, signal }));
  } catch (error) {
    if (error instanceof ApiError && STAYS.has(error.status)) return error;
    throw error;
  }
}

const TAGS_APART = /[\s,]+/;

/** `night Week-47` → both, as tags are written. */
export function tagsOf(text: string): string[] {
  return [...new Set(text.toLowerCase().split(TAGS_APART).filter((tag) => tag !== ""))];
}
