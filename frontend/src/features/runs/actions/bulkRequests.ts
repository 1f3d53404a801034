/** Actions on many runs: which runs they apply to, and the result for each. */
import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { ApiError, errorMessage } from "@/api/errors";
import type { BulkAction, BulkResult, FreedSpace, Run } from "@/api/types";
import { canPause } from "@/features/runs/actions/runRequests";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runs/runProgress";

export type RunAction = BulkAction["action"];

const IS_ELIGIBLE: Record<RunAction, (run: Run) => boolean> = {
  pause: canPause,
  resume: ({ state }) => state === "paused",
  cancel: ({ state, verdict }) => !isFinal(state) && !(state === "stopping" && verdict === "cancel"),
  delete: ({ state }) => isFinal(state),
  tag: () => true,
  untag: ({ tags }) => tags.length > 0,
};

/** The runs that the action currently applies to. */
export function eligibleRuns(action: RunAction, runs: readonly Run[]): Run[] {
  return runs.filter(IS_ELIGIBLE[action]);
}

/** The API accepts at most this many runs per request. */
const MAX_PER_REQUEST = 200;

/** A request failed after earlier ones had succeeded. */
export class PartialBulkError extends Error {
  /** The results so far. */
  readonly results: readonly BulkResult[];

  constructor(words: string, results: readonly BulkResult[], cause: unknown) {
    super(`${words}, then stopped: ${errorMessage(cause)}`, { cause });
    this.results = results;
  }
}

/**
 * The result for each run. Runs that exceed the limit of one request are sent in several, one after another.
 *
 * @throws PartialBulkError if a request after the first one fails
 */
export async function sendBulk(team: string, actions: readonly BulkAction[]): Promise<BulkResult[]> {
  const results: BulkResult[] = [];
  const all = actions.reduce((sum, { runs }) => sum + runs.length, 0);
  let requestedCount = 0;
  for (const part of actions.flatMap(splitAction)) {
    try {
      results.push(...body(await api.POST("/api/v1/teams/{team}/runs/bulk", { params: { path: { team } }, body: part })));
    } catch (error) {
      if (requestedCount === 0) throw error;
      throw new PartialBulkError(actions.length === 1 ? `${count(requestedCount)} of ${count(all)} runs sent` : "Partly done", results, error);
    }
    requestedCount += part.runs.length;
  }
  return results;
}

function splitAction(action: BulkAction): BulkAction[] {
  const parts = Math.ceil(action.runs.length / MAX_PER_REQUEST);
  return Array.from({ length: parts }, (_, at) => ({ ...action, runs: action.runs.slice(at * MAX_PER_REQUEST, (at + 1) * MAX_PER_REQUEST) }));
}

/** Few enough to leave connections for the page's own requests. */
const MAX_CONCURRENT = 4;

/** What deleting each of these runs would free, or why it is refused. */
export function freedSpaceQuery(team: string, runs: readonly string[]) {
  return queryOptions({
    queryKey: ["freed", team, runs],
    queryFn: async ({ signal }) => {
      const responses = new Map<string, FreedSpace | ApiError>();
      const remaining = [...runs];
      const countNext = async () => {
        for (let run = remaining.shift(); run !== undefined; run = remaining.shift()) responses.set(run, await freedSpaceOf(team, run, signal));
      };
      await Promise.all(Array.from({ length: MAX_CONCURRENT }, countNext));
      return responses;
    },
    retry: false,
    // Fresh each time the dialog opens.
    staleTime: Infinity,
    gcTime: 0,
  });
}

/** The run cannot be deleted in its state or is gone; other errors concern the request, not the run. */
const UNDELETABLE: ReadonlySet<number> = new Set([404, 409]);

async function freedSpaceOf(team: string, run: string, signal: AbortSignal): Promise<FreedSpace | ApiError> {
  try {
    const params = { path: { team, run }, query: { dry_run: true } };
    return body(await api.DELETE("/api/v1/teams/{team}/runs/{run}", { params, signal }));
  } catch (error) {
    if (error instanceof ApiError && UNDELETABLE.has(error.status)) return error;
    throw error;
  }
}

const TAG_SEPARATOR = /[\s,]+/;

/** `night Week-47` → both, normalized. */
export function parseTags(text: string): string[] {
  return [...new Set(text.toLowerCase().split(TAG_SEPARATOR).filter((tag) => tag !== ""))];
}
