/** Saved views of the runs table: its filter, order, columns and grouping under a name. */
import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { RunView, SavedView } from "@/api/types";
import { parseColumns } from "@/features/runs/list/runColumns";
import type { RunsSearch } from "@/features/runs/list/runFilter";

/** One's own views, by name. */
export function viewsQuery(team: string) {
  return queryOptions({
    queryKey: ["views", team],
    queryFn: async ({ signal }) => body(await api.GET("/api/v1/teams/{team}/views", { params: { path: { team } }, signal })).items,
    staleTime: 30_000,
  });
}

export async function saveView(team: string, name: string, view: RunView): Promise<SavedView> {
  return body(await api.POST("/api/v1/teams/{team}/views", { params: { path: { team } }, body: { name, view } }));
}

export async function deleteView(team: string, view: string): Promise<void> {
  await api.DELETE("/api/v1/teams/{team}/views/{view}", { params: { path: { team, view } } });
}

/** What the address shows, as a view. */
export function viewOfSearch({ q, state, tag, mine, sort, order, columns, group }: RunsSearch): RunView {
  return {
    q: q ?? "",
    state: state ?? [],
    tag: tag ?? [],
    mine: mine === true,
    sort: sort ?? "created",
    order: order ?? "desc",
    columns: parseColumns(columns) ?? [],
    group: group ?? null,
  };
}

/** The address that shows a view. */
export function searchOfView({ q, state, tag, mine, sort, order, columns, group }: RunView): RunsSearch {
  const isSorted = sort !== "created" || order !== "desc";
  return {
    ...(q === "" ? {} : { q }),
    ...(state.length === 0 ? {} : { state }),
    ...(tag.length === 0 ? {} : { tag }),
    ...(mine ? { mine: true as const } : {}),
    ...(isSorted ? { sort, order } : {}),
    ...(columns.length === 0 ? {} : { columns: columns.join(",") }),
    ...(group == null ? {} : { group }),
  };
}

export function isSameView(a: RunView, b: RunView): boolean {
  return JSON.stringify(sortedView(a)) === JSON.stringify(sortedView(b));
}

/** The order of filters and columns does not matter. */
function sortedView({ q, state, tag, mine, sort, order, columns, group }: RunView) {
  return [q, state.toSorted(), tag.toSorted(), mine, sort, order, columns.toSorted(), group ?? null];
}
