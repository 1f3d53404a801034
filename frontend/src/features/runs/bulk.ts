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

/** Some runs were asked before a request failed. */
export class StoppedError extends Error {
  /** What became of those. */
  readonly results: readonly BulkResult[];

  constructor(words: string, results: readonly BulkResult[], cause: unknown) {
    super(`${words}, then it stopped: ${sentenceOf(cause)}`, { cause });
    this.results = results;
  }
}

/**
 * What became of each run. More than one request takes go in several, one after another.
 *
 * @throws StoppedError where one fails that is not the first
 */
export async function sendBulk(team: string, actions: readonly BulkAction[]): Promise<BulkResult[]> {
  const results: BulkResult[] = [];
  const all = actions.reduce((sum, { runs }) => sum + runs.length, 0);
  let asked = 0;
  for (const part of actions.flatMap(partsOf)) {
    try {
      results.push(...body(await api.POST("/api/v1/teams/{team}/runs/bulk", { params: { path: { team } }, body: part })));
    } catch (error) {
      if (asked === 0) throw error;
      throw new StoppedError(actions.length === 1 ? `${count(asked)} of ${count(all)} runs were asked` : "A part of it is done", results, error);
    }
    asked += part.runs.length;
  }
  return results;
}

function partsOf(action: BulkAction): BulkAction[] {
  const parts = Math.ceil(action.runs.length / MOST_AT_ONCE);
  return Array.from({ length: parts }, (_, at) => ({ ...action, runs: action.runs.slice(at * MOST_AT_ONCE, (at + 1) * MOST_AT_ONCE) }));
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
