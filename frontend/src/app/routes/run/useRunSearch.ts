import { useLocation, useMatch, useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { clearedView, searchOf, viewOf, type ChartView, type ViewSearch } from "@/features/metrics/charts/chartView";
import { lineOfHash } from "@/features/runs/log/logSearch";

const ROUTE = "/$team/runs/$runId/$tab";

/** The address of a run's tab: its search parameters, and how to change them. */
export function useRunSearch() {
  const search = useSearch({ from: ROUTE });
  const line = useLocation({ select: ({ hash }) => lineOfHash(hash) });
  const pathname = useMatch({ from: ROUTE, select: (match) => match.pathname });
  const router = useRouter();
  const navigate = useNavigate();
  const view = useStableView(search);
  return { search, line, view, updateSearch, updateView };

  /** Updates this tab's part of the address. Ignored after the user has left the page. */
  function updateSearch(next: Partial<typeof search>, hash: string | true = true): void {
    if (currentPath() === pathname) navigateSearch((old) => ({ ...old, ...next }), hash);
  }

  /** Tabs share a view: a change made just before leaving one applies to the next. */
  function updateView(next: Partial<ChartView>): void {
    if (parentPath(currentPath()) !== parentPath(pathname)) return;
    navigateSearch((old) => ({ ...old, ...clearedView, ...searchOf({ ...viewOf(old), ...next }) }));
  }

  /** The latest path, which may not be rendered yet, without a trailing slash. */
  function currentPath(): string {
    return router.latestLocation.pathname.replace(/\/$/, "");
  }

  function navigateSearch(next: (old: typeof search) => typeof search, hash: string | true = true): void {
    void navigate({ to: ".", search: next, hash, replace: true, resetScroll: false });
  }
}

/** Returns the same view while the address describes the same one, so that nothing re-renders. */
function useStableView(search: ViewSearch): ChartView {
  const key = JSON.stringify(searchOf(viewOf(search)));
  return useMemo(() => viewOf(JSON.parse(key) as ViewSearch), [key]);
}

function parentPath(pathname: string): string {
  return pathname.slice(0, pathname.lastIndexOf("/"));
}
