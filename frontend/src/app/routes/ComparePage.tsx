import { usePrefetchQuery, useQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { Link, useMatch, useNavigate, useParams, useRouter, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Run } from "@/api/types";
import { buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorState } from "@/components/ErrorState";
import { Skeleton } from "@/components/Skeleton";
import { TitleRow } from "@/components/TitleRow";
import { CompareCharts } from "@/features/metrics/CompareCharts";
import { comparedQuery } from "@/features/metrics/compareQueries";
import { CompareList } from "@/features/metrics/CompareList";
import { compareViewOf, MOST_COMPARED, searchOfCompare, type ChangeView, type CompareSearch } from "@/features/metrics/compareView";
import { someRunsQuery } from "@/features/runs/queries";
import { SpecDifferences } from "@/features/runs/SpecDifferences";
import { count, plural } from "@/lib/format";

/** Several runs over one axis: their curves, where they stand, and what was asked differently of them. */
export function ComparePage() {
  const { team } = useParams({ from: "/$team" });
  const search = useSearch({ from: "/$team/compare" });
  const pathname = useMatch({ from: "/$team/compare", select: (match) => match.pathname });
  const router = useRouter();
  const navigate = useNavigate({ from: "/$team/compare" });
  const client = useQueryClient();
  const view = useMemo(() => compareViewOf(search), [search]);
  // The curves do not wait for the runs that they are of.
  usePrefetchQuery(comparedQuery({ team, runs: view.runs, series: view.series, axis: view.chart.x }));
  const { data, error, isPending, isPlaceholderData, refetch } = useQuery({
    ...someRunsQuery(team, view.runs),
    // The table of runs, from which people come, has them already; those that stay are known when one is left out.
    placeholderData: (before) =>
      allOf(view.runs, [...(before ?? []), ...listed(client.getQueriesData({ queryKey: ["runs", team] }))]),
  });
  const runs = useMemo(() => new Map(data?.map((run) => [run.id, run])), [data]);
  // The list and the charts write one view: each changes what it means of the newest, which may not be drawn yet.
  const change: ChangeView = (next) => {
    // Who leaves is let go.
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
      </TitleRow>
      {view.leftOut > 0 && (
        <p role="status" className="mb-4 text-small text-warn">
          The address names {count(view.leftOut)} more; {MOST_COMPARED} are shown.
        </p>
      )}
      {missing.length > 0 && data !== undefined && !isPlaceholderData && (
        <div className="mb-4 flex flex-wrap items-center gap-3">
          <p role="status" className="text-warn">
            {plural(missing.length, "run")} of this address {missing.length === 1 ? "is" : "are"} not there: deleted, or another team’s.
          </p>
          <button
            type="button"
            className={buttonClass()}
            onClick={() => {
              change(({ runs }) => ({ runs: runs.filter((id) => !missing.includes(id)) }));
            }}
          >
            Leave {plural(missing.length, "run")} out
          </button>
        </div>
      )}
      {view.runs.length === 0 ? (
        <EmptyState title="Nothing to compare yet.">
          <p>Choose runs in the table with x, then Compare. The address of the comparison can be shared.</p>
          <Link to="/$team/runs" params={{ team }} className={buttonClass()}>
            Go to the runs
          </Link>
        </EmptyState>
      ) : runs.size === 0 ? (
        error === null ? isPending && <Skeleton /> : <ErrorState error={error} onRetry={() => void refetch()} />
      ) : (
        <>
          <CompareList team={team} runs={runs} view={view} onChange={change} />
          <CompareCharts team={team} runs={runs} view={view} onChange={change} />
          <SpecDifferences runs={view.runs.flatMap((id) => runs.get(id) ?? [])} />
        </>
      )}
    </>
  );
}

/** The runs of these ids, or undefined where one is not among `known`. */
function allOf(ids: readonly string[], known: readonly Run[]): Run[] | undefined {
  const byId = new Map(known.map((run) => [run.id, run]));
  const found = ids.flatMap((id) => byId.get(id) ?? []);
  return found.length === ids.length ? found : undefined;
}

/** What the lists of runs that were loaded have; what is kept of home's has no pages. */
function listed(lists: [unknown, Partial<InfiniteData<{ items: Run[] }>> | undefined][]): Run[] {
  return lists.flatMap(([, list]) => (list?.pages ?? []).flatMap(({ items }) => items));
}
