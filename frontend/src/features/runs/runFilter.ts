import type { RunState } from "@/api/types";
import { RUN_STATES } from "@/lib/stateLook";

export const RUN_SORTS = ["created", "name", "loss", "mfu", "tokens_per_second", "step"] as const;

export type RunSort = (typeof RUN_SORTS)[number];

/** Which runs are listed, and in what order; it stands in the address. */
export interface RunFilter {
  /** Words that the name contains. */
  q?: string;
  state?: RunState[];
  mine?: true;
  sort?: RunSort;
  order?: "asc" | "desc";
}

const LONGEST_Q = 200;

export function parseRunFilter({ q, state, mine, sort, order }: Record<string, unknown>): RunFilter {
  const states = RUN_STATES.filter((one) => (Array.isArray(state) ? state.includes(one) : state === one));
  const sorted = RUN_SORTS.find((one) => one === sort);
  return {
    ...((typeof q === "string" && q !== "") || typeof q === "number" ? { q: String(q).slice(0, LONGEST_Q) } : {}),
    ...(states.length > 0 ? { state: states } : {}),
    ...(mine === true ? { mine } : {}),
    ...(sorted === undefined ? {} : { sort: sorted }),
    ...(sorted !== undefined && (order === "asc" || order === "desc") ? { order } : {}),
  };
}

/** Whether runs are left out; the order leaves none out. */
export function leavesOut({ q, state, mine }: RunFilter): boolean {
  return q !== undefined || state !== undefined || mine !== undefined;
}

/** Names and losses begin with the least, all else with the greatest. */
function firstOrder(sort: RunSort): "asc" | "desc" {
  return sort === "name" || sort === "loss" ? "asc" : "desc";
}

/** The order by which the list is sorted by this column; undefined where it is sorted by another. */
export function orderBy(filter: RunFilter, sort: RunSort): "asc" | "desc" | undefined {
  return filter.sort === sort ? (filter.order ?? "desc") : undefined;
}

/** The filter after a press on a column's head: its own order, then the other way round, then newest first again. */
export function sortedBy(filter: RunFilter, sort: RunSort): RunFilter {
  const now = orderBy(filter, sort);
  const first = firstOrder(sort);
  if (now === undefined) return { ...filter, sort, order: first };
  if (now === first) return { ...filter, sort, order: first === "asc" ? "desc" : "asc" };
  return { ...filter, sort: undefined, order: undefined };
}

/** States that say the same word are chosen together. */
export function toggledStates(filter: RunFilter, states: readonly RunState[]): RunFilter {
  const { state: before = [], ...rest } = filter;
  const chosen = states.every((one) => before.includes(one));
  const state = RUN_STATES.filter((one) => (states.includes(one) ? !chosen : before.includes(one)));
  return state.length === 0 ? rest : { ...rest, state };
}
