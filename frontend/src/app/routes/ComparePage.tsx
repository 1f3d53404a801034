import { useQueries, useQueryClient, type InfiniteData, type UseQueryResult } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Run } from "@/api/types";
import { buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Skeleton } from "@/components/Skeleton";
import { TitleRow } from "@/components/TitleRow";
import { CompareCharts } from "@/features/metrics/CompareCharts";
import { CompareList } from "@/features/metrics/CompareList";
import { compareViewOf, MOST_COMPARED, searchOfCompare, type CompareView } from "@/features/metrics/compareView";
import { runQuery } from "@/features/runs/queries";
import { SpecDifferences } from "@/features/runs/SpecDifferences";
import { count, plural } from "@/lib/format";
import { isFinal } from "@/lib/runProgress";

const LIVE_MS = 2_000;

/** Several runs over one axis: their curves, where they stand, and what was asked differently of them. */
export function ComparePage() {
  const { team } = useParams({ from: "/$team" });
  const search = useSearch({ from: "/$team/compare" });
  const navigate = useNavigate();
  const client = useQueryClient();
  const view = useMemo(() => compareViewOf(search), [search]);
  const { runs, pending, errors } = useQueries({
    queries: view.runs.map((id) => ({
      ...runQuery(team, id),
      // The table of runs, from which people come, has them already.
      initialData: () => listedRun(client.getQueriesData<InfiniteData<{ items: Run[] }>>({ queryKey: ["runs", team] }), id),
      staleTime: LIVE_MS,
      refetchInterval: ({ state: { data } }: { state: { data?: Run | undefined } }) =>
        data === undefined || isFinal(data.state) ? (false as const) : LIVE_MS * Math.max(1, view.runs.length / 5),
    })),
    combine,
  });
  const change = (next: CompareView) =>
    void navigate({ to: ".", search: searchOfCompare(next), replace: true, resetScroll: false });
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
      {errors.length > 0 && !pending && (
        <div className="mb-4 flex flex-wrap items-center gap-3">
          <ErrorNote error={errors[0]} />
          <button
            type="button"
            className={buttonClass()}
            onClick={() => {
              change({ ...view, runs: view.runs.filter((id) => !missing.includes(id)) });
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
        pending && <Skeleton />
      ) : (
        <>
          <CompareList team={team} runs={runs} view={view} onView={change} />
          <CompareCharts team={team} runs={runs} view={view} onView={change} />
          <SpecDifferences runs={view.runs.flatMap((id) => runs.get(id) ?? [])} />
        </>
      )}
    </>
  );
}

function combine(results: UseQueryResult<Run>[]) {
  return {
    runs: new Map(results.flatMap(({ data }) => (data === undefined ? [] : [[data.id, data]]))),
    pending: results.some(({ isPending }) => isPending),
    errors: results.flatMap(({ error }) => error ?? []),
  };
}

function listedRun(lists: [unknown, InfiniteData<{ items: Run[] }> | undefined][], id: string): Run | undefined {
  for (const [, list] of lists) {
    for (const { items } of list?.pages ?? []) {
      const found = items.find((run) => run.id === id);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}
