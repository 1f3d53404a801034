import type { RunState } from "@/api/types";
import { RUN_STATES, stateLook } from "@/lib/stateLook";

export const RUN_SORTS = ["created", "name", "loss", "mfu", "tokens_per_second", "step", "ended"] as const;

export type RunSort = (typeof RUN_SORTS)[number];

/** Which runs are listed, and in what order; it stands in the address. */
export interface RunFilter {
  /** Words that the name contains. */
  q?: string;
  state?: RunState[];
  /** All of which it has. */
  tag?: string[];
  mine?: true;
  sort?: RunSort;
  order?: "asc" | "desc";
}

/** What the address of the runs table says besides: the columns, and how many pages of the list are in it. */
export interface RunsSearch extends RunFilter {
  columns?: string;
  page?: number;
}

const LONGEST_Q = 200;
const MOST_PAGES = 100;

export function parseRunsSearch(search: Record<string, unknown>): RunsSearch {
  const { columns, page } = search;
  const pages = typeof page === "number" ? Math.min(MOST_PAGES, Math.floor(page)) : 1;
  return {
    ...parseRunFilter(search),
    ...(typeof columns === "string" ? { columns } : {}),
    ...(pages > 1 ? { page: pages } : {}),
  };
}

export function parseRunFilter({ q, state, tag, mine, sort, order }: Record<string, unknown>): RunFilter {
  const states = RUN_STATES.filter((one) => (Array.isArray(state) ? state.includes(one) : state === one));
  const sorted = RUN_SORTS.find((one) => one === sort);
  return {
    ...((typeof q === "string" && q !== "") || typeof q === "number" ? { q: String(q).slice(0, LONGEST_Q) } : {}),
    ...(states.length > 0 ? { state: states } : {}),
    ...tagsOf(Array.isArray(tag) ? tag : [tag]),
    ...(mine === true ? { mine } : {}),
    ...(sorted === undefined ? {} : { sort: sorted }),
    ...(sorted !== undefined && (order === "asc" || order === "desc") ? { order } : {}),
  };
}

const TAG = /^[a-z0-9][a-z0-9._-]{0,39}$/;

function tagsOf(tags: readonly unknown[]): Pick<RunFilter, "tag"> {
  const good = [...new Set(tags.filter((one) => typeof one === "string" || typeof one === "number").map(String))].filter((one) => TAG.test(one));
  return good.length === 0 ? {} : { tag: good };
}

/** Whether runs are left out; the order leaves none out. */
export function leavesOut({ q, state, tag, mine }: RunFilter): boolean {
  return q !== undefined || state !== undefined || tag !== undefined || mine !== undefined;
}

export function toggledTag({ tag = [], ...rest }: RunFilter, name: string): RunFilter {
  return { ...rest, ...tagsOf(tag.includes(name) ? tag.filter((one) => one !== name) : [...tag, name]) };
}

/** `tag:`, `state:` and `by:me` among typed words become filters; what is left are words of the name. */
export function spoken(filter: RunFilter, text: string): { filter: RunFilter; rest: string } {
  let heard = filter;
  const rest = text.split(" ").filter((word) => {
    const [key = "", value = ""] = word.split(":");
    const next = heardWord(heard, key.toLowerCase(), value.toLowerCase());
    heard = next ?? heard;
    return next === null;
  });
  return { filter: heard, rest: rest.join(" ") };
}

function heardWord(filter: RunFilter, key: string, value: string): RunFilter | null {
  if (key === "tag" && TAG.test(value)) return filter.tag?.includes(value) === true ? filter : toggledTag(filter, value);
  if (key === "by" && value === "me") return { ...filter, mine: true };
  const states = key === "state" ? statesCalled(value) : [];
  return states.length === 0 ? null : { ...filter, state: RUN_STATES.filter((one) => states.includes(one) || filter.state?.includes(one) === true) };
}

/** By the word that people see, or by the name that the API has for it. */
function statesCalled(word: string): RunState[] {
  return RUN_STATES.filter((state) => state === word || stateLook[state].word.toLowerCase() === word);
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
