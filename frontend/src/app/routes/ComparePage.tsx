import { usePrefetchQuery, useQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { Link, useMatch, useNavigate, useParams, useRouter, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Run } from "@/api/types";
import { buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { TitleRow } from "@/components/TitleRow";
import { useDatasetNames } from "@/features/datasets/useDatasetNames";
import { CompareCharts } from "@/features/metrics/compare/CompareCharts";
import { comparedQuery } from "@/features/metrics/compare/compareQueries";
import { CompareTable } from "@/features/metrics/compare/CompareTable";
import { compareViewOf, MAX_COMPARED, searchOfCompare, type ChangeView, type CompareSearch } from "@/features/metrics/compare/compareView";
import { CompareWith } from "@/features/runs/compare/CompareWith";
import { someRunsQuery } from "@/features/runs/queries";
import { SpecDifferences } from "@/features/runs/compare/SpecDifferences";
import { plural } from "@/lib/format";

/** Compares several runs: curves over one axis, current metrics and configuration differences. */
export function ComparePage() {
  const { team } = useParams({ from: "/$team" });
  const search = useSearch({ from: "/$team/compare" });
  const pathname = useMatch({ from: "/$team/compare", select: (match) => match.pathname });
  const router = useRouter();
  const navigate = useNavigate({ from: "/$team/compare" });
  const client = useQueryClient();
  const view = useMemo(() => compareViewOf(search), [search]);
  const datasets = useDatasetNames(team);
  // The curves do not wait for the runs themselves.
  usePrefetchQuery(comparedQuery({ team, runs: view.runs, series: view.series, axis: view.chart.x }));
  const { data, error, isPending, isPlaceholderData, refetch } = useQuery({
    ...someRunsQuery(team, view.runs),
    // The runs table, where users come from, has already loaded them; the remaining runs are known when one is
    // removed.
    placeholderData: (before) =>
      pickAll(view.runs, [...(before ?? []), ...cachedRuns(client.getQueriesData({ queryKey: ["runs", team] }))]),
  });
  const runs = useMemo(() => new Map(data?.map((run) => [run.id, run])), [data]);
  // The table and the charts update the same view; each changes its part of the latest one, which may not be
  // rendered yet.
  const updateView: ChangeView = (next) => {
    // Ignores updates after the user has left the page.
    if (router.latestLocation.pathname.replace(/\/$/, "") !== pathname) return;
    const changed = (old: CompareSearch) => searchOfCompare({ ...compareViewOf(old), ...next(compareViewOf(old)) });
    void navigate({ to: ".", search: changed, replace: true, resetScroll: false });
  };
  const missing = view.runs.filter((id) => !runs.has(id));
  return (
    <>
      <TitleRow
        title="Compare"
        parent={
          <Link to="/$team/runs" params={{ team }} className="hover:text-accent">
            Runs
          </Link>
        }
      >
        <span className="text-soft">{plural(view.runs.length, "run")}</span>
        {view.runs.length > 0 && view.runs.length < MAX_COMPARED && (
          <CompareWith team={team} runs={view.runs} label="add runs" searchOf={(runs) => searchOfCompare({ ...view, runs: [...runs] })} />
        )}
      </TitleRow>
      {view.leftOut > 0 && (
        <p role="status" className="mb-4 text-small text-warn">
          The address names {plural(view.leftOut, "more run")}; only the first {MAX_COMPARED} are shown.
        </p>
      )}
      {missing.length > 0 && data !== undefined && !isPlaceholderData && (
        <div className="mb-4 flex flex-wrap items-center gap-3">
          <p role="status" className="text-warn">
            {plural(missing.length, "run")} in this address {missing.length === 1 ? "was" : "were"} not found: deleted, or owned by another team.
          </p>
          <button
            type="button"
            className={buttonClass()}
            onClick={() => {
              updateView(({ runs }) => ({ runs: runs.filter((id) => !missing.includes(id)) }));
            }}
          >
            Remove {plural(missing.length, "run")}
          </button>
        </div>
      )}
      {view.runs.length === 0 ? (
        <EmptyState title="Nothing to compare yet.">
          <p>Select runs in the table with x, then press Compare. You can share the comparison's address.</p>
          <Link to="/$team/runs" params={{ team }} className={buttonClass()}>
            Go to runs
          </Link>
        </EmptyState>
      ) : runs.size === 0 ? (
        error === null ? isPending && <Skeleton /> : <ErrorState error={error} onRetry={() => void refetch()} />
      ) : (
        <>
          <CompareTable team={team} runs={runs} view={view} onChange={updateView} />
          <CompareCharts team={team} runs={runs} view={view} onChange={updateView} />
          <SpecDifferences runs={view.runs.flatMap((id) => runs.get(id) ?? [])} datasets={datasets} />
        </>
      )}
    </>
  );
}

/** The runs with these ids, or undefined if one of them is not in `known`. */
function pickAll(ids: readonly string[], known: readonly Run[]): Run[] | undefined {
  const byId = new Map(known.map((run) => [run.id, run]));
  const found = ids.flatMap((id) => byId.get(id) ?? []);
  return found.length === ids.length ? found : undefined;
}

/** Runs of the cached lists; the home page's lists have no pages. */
function cachedRuns(lists: [unknown, Partial<InfiniteData<{ items: Run[] }>> | undefined][]): Run[] {
  return lists.flatMap(([, list]) => (list?.pages ?? []).flatMap(({ items }) => items));
}
