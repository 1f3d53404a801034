import type { RunState } from "@/api/types";
import { RUN_STATES, stateStyle } from "@/lib/runs/stateStyle";

export const RUN_SORTS = ["created", "name", "loss", "mfu", "tokens_per_second", "step", "ended"] as const;

export type RunSort = (typeof RUN_SORTS)[number];

export const RUN_GROUPINGS = ["tag", "dataset", "model", "state"] as const;

export type RunGrouping = (typeof RUN_GROUPINGS)[number];

/** The filter and order of the runs table, as in the address. */
export interface RunFilter {
  /** Text in the name. */
  q?: string;
  state?: RunState[];
  /** Runs must have all of them. */
  tag?: string[];
  mine?: true;
  untagged?: true;
  dataset?: string;
  /** Layers and width, `12x768`. */
  model?: string;
  sort?: RunSort;
  order?: "asc" | "desc";
}

/** The full address of the runs table: also its columns and the number of loaded pages. */
export interface RunsSearch extends RunFilter {
  columns?: string;
  page?: number;
  group?: RunGrouping;
  /** The group whose runs are listed. */
  open?: string;
}

const MAX_Q_LENGTH = 200;
const MAX_PAGES = 100;

export function parseRunsSearch(search: Record<string, unknown>): RunsSearch {
  const { columns, page, open } = search;
  const group = RUN_GROUPINGS.find((one) => one === search["group"]);
  const pages = typeof page === "number" ? Math.min(MAX_PAGES, Math.floor(page)) : 1;
  return {
    ...parseRunFilter(search),
    ...(typeof columns === "string" ? { columns } : {}),
    ...(pages > 1 ? { page: pages } : {}),
    ...(group === undefined ? {} : { group }),
    ...(group !== undefined && (typeof open === "string" || typeof open === "number") ? { open: String(open) } : {}),
  };
}

export function parseRunFilter({ q, state, tag, mine, sort, order }: Record<string, unknown>): RunFilter {
  const states = RUN_STATES.filter((one) => (Array.isArray(state) ? state.includes(one) : state === one));
  const sorted = RUN_SORTS.find((one) => one === sort);
  return {
    ...((typeof q === "string" && q !== "") || typeof q === "number" ? { q: String(q).slice(0, MAX_Q_LENGTH) } : {}),
    ...(states.length > 0 ? { state: states } : {}),
    ...tagsParam(Array.isArray(tag) ? tag : [tag]),
    ...(mine === true ? { mine } : {}),
    ...(sorted === undefined ? {} : { sort: sorted }),
    ...(sorted !== undefined && (order === "asc" || order === "desc") ? { order } : {}),
  };
}

const TAG = /^[a-z0-9][a-z0-9._-]{0,39}$/;

function tagsParam(tags: readonly unknown[]): Pick<RunFilter, "tag"> {
  const valid = [...new Set(tags.filter((tag) => typeof tag === "string" || typeof tag === "number").map(String))].filter((value) => TAG.test(value));
  return valid.length === 0 ? {} : { tag: valid };
}

/** Whether any runs are filtered out; sorting does not count. */
export function isFiltering({ q, state, tag, mine }: RunFilter): boolean {
  return q !== undefined || state !== undefined || tag !== undefined || mine !== undefined;
}

export function toggleTag({ tag = [], ...rest }: RunFilter, name: string): RunFilter {
  return { ...rest, ...tagsParam(tag.includes(name) ? tag.filter((value) => value !== name) : [...tag, name]) };
}

/** Turns `tag:`, `state:` and `by:me` terms of the typed text into filters; the rest is matched against names. */
export function parseTypedFilter(filter: RunFilter, text: string): { filter: RunFilter; rest: string } {
  let parsed = filter;
  const rest = text.split(" ").filter((word) => {
    const [key = "", value = ""] = word.split(":");
    const next = applyTerm(parsed, key.toLowerCase(), value.toLowerCase());
    parsed = next ?? parsed;
    return next === null;
  });
  return { filter: parsed, rest: rest.join(" ") };
}

const TERM_AT_THE_END = /(?<=^|\s)(?:tag|state|by):\S*$/i;

/** The text before a term that is still being typed, and that term: a term ends with a space. */
export function splitUnfinishedTerm(text: string): [string, string] {
  const term = TERM_AT_THE_END.exec(text)?.[0] ?? "";
  return [text.slice(0, text.length - term.length), term];
}

function applyTerm(filter: RunFilter, key: string, value: string): RunFilter | null {
  if (key === "tag" && TAG.test(value)) return filter.tag?.includes(value) === true ? filter : toggleTag(filter, value);
  if (key === "by" && value === "me") return { ...filter, mine: true };
  const states = key === "state" ? statesNamed(value) : [];
  return states.length === 0 ? null : { ...filter, state: RUN_STATES.filter((state) => states.includes(state) || filter.state?.includes(state) === true) };
}

/** The states with this label or name in the API. */
function statesNamed(word: string): RunState[] {
  return RUN_STATES.filter((state) => state === word || stateStyle[state].label.toLowerCase() === word);
}

/** Names and losses start with the smallest, everything else with the largest. */
function defaultOrder(sort: RunSort): "asc" | "desc" {
  return sort === "name" || sort === "loss" ? "asc" : "desc";
}

/** The sort order of this column; undefined if the table is sorted by another one. */
export function sortOrder(filter: RunFilter, sort: RunSort): "asc" | "desc" | undefined {
  return filter.sort === sort ? (filter.order ?? "desc") : undefined;
}

/**
 * The filter after a click on a column header: the column's default order, then reversed, then newest first again.
 */
export function toggleSort(filter: RunFilter, sort: RunSort): RunFilter {
  const now = sortOrder(filter, sort);
  const first = defaultOrder(sort);
  if (now === undefined) return { ...filter, sort, order: first };
  if (now === first) return { ...filter, sort, order: first === "asc" ? "desc" : "asc" };
  return { ...filter, sort: undefined, order: undefined };
}

/** States that share a label are toggled together. */
export function toggleStates(filter: RunFilter, states: readonly RunState[]): RunFilter {
  const { state: before = [], ...rest } = filter;
  const chosen = states.every((state) => before.includes(state));
  const state = RUN_STATES.filter((state) => (states.includes(state) ? !chosen : before.includes(state)));
  return state.length === 0 ? rest : { ...rest, state };
}
