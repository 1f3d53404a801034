import { Link, useNavigate, useParams, useRouteContext, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ForEditors } from "@/components/ForEditors";
import { TitleRow } from "@/components/TitleRow";
import { useDatasetNames } from "@/features/datasets/useDatasetNames";
import { ColumnMenu } from "@/features/runs/list/ColumnMenu";
import { DatasetNames } from "@/features/runs/list/datasetNames";
import { DEFAULT_COLUMNS, parseColumns, storeColumns, storedColumns } from "@/features/runs/list/runColumns";
import { RunFilterBar } from "@/features/runs/list/RunFilterBar";
import { ExportMenu } from "@/features/runs/list/ExportMenu";
import { GroupedRuns } from "@/features/runs/list/GroupedRuns";
import { GroupMenu } from "@/features/runs/list/GroupMenu";
import type { RunFilter, RunsSearch } from "@/features/runs/list/runFilter";
import { RunTable } from "@/features/runs/list/RunTable";
import { ViewMenu } from "@/features/runs/views/ViewMenu";
import { searchOfView, viewOfSearch } from "@/features/runs/views/views";
import { NewRunLink } from "@/features/runs/NewRunLink";

export function RunsPage() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const search = useSearch({ from: "/$team/runs" });
  const { columns: columnsParam, page = 1, group, open, ...filter } = search;
  const navigate = useNavigate();
  const columns = useMemo(() => parseColumns(columnsParam) ?? storedColumns(me.id) ?? DEFAULT_COLUMNS, [columnsParam, me.id]);
  const datasetNames = useDatasetNames(team);
  const updateSearch = useCallback(
    (search: (old: RunsSearch) => RunsSearch) =>
      void navigate({ to: "/$team/runs", params: { team }, search, replace: true, resetScroll: false }),
    [navigate, team],
  );
  const setFilter = (next: RunFilter) => {
    updateSearch(({ columns, group, open }) => ({ ...next, columns, group, open }));
  };
  const clearFilter = () => {
    setFilter({});
  };
  const onPages = useCallback(
    (page: number) => {
      updateSearch((old) => ({ ...old, page }));
    },
    [updateSearch],
  );
  const [selecting, setSelecting] = useState(false);
  const table = {
    team,
    selecting,
    filter,
    columns,
    pages: page,
    onPages,
    onFilter: setFilter,
    onClear: clearFilter,
    onCompare: (runs: readonly string[]) => void navigate({ to: "/$team/compare", params: { team }, search: { runs: runs.join(",") } }),
    empty: <NoRuns team={team} />,
  };
  return (
    <>
      <TitleRow title="Runs" actions={<NewRunLink team={team} />} />
      <RunFilterBar filter={filter} onFilter={setFilter} onClear={clearFilter} selecting={selecting} onSelecting={setSelecting}>
        <ViewMenu
          team={team}
          view={viewOfSearch({ ...search, columns: columns === DEFAULT_COLUMNS ? undefined : columns.join(",") })}
          onChoose={(view) => {
            updateSearch(() => ({ columns: DEFAULT_COLUMNS.join(","), ...searchOfView(view) }));
          }}
        />
        <GroupMenu
          grouping={group}
          onChange={(group) => {
            updateSearch((old) => ({ ...old, group, open: undefined, page: undefined }));
          }}
        />
        <ColumnMenu
          columns={columns}
          onChange={(next) => {
            storeColumns(me.id, next);
            updateSearch((old) => ({ ...old, columns: next.join(",") }));
          }}
        />
        <ExportMenu team={team} filter={filter} />
      </RunFilterBar>
      <AsyncBoundary>
        <DatasetNames value={datasetNames}>
          {group === undefined ? (
            <RunTable key={team} {...table} />
          ) : (
            <GroupedRuns
              key={`${team} ${group}`}
              {...table}
              grouping={group}
              open={open}
              onOpen={(open) => {
                updateSearch((old) => ({ ...old, open, page: undefined }));
              }}
            />
          )}
        </DatasetNames>
      </AsyncBoundary>
      <p className="mt-3 text-small text-soft max-tablet:hidden">
        <KeyHint name="j" /> <KeyHint name="k" /> move down and up, <KeyHint name="↵" /> opens, <KeyHint name="x" /> selects, <KeyHint name="/" /> filters
        <ForEditors>
          , <KeyHint name="n" /> starts a new run
        </ForEditors>
      </p>
    </>
  );
}

function NoRuns({ team }: { team: string }) {
  return (
    <EmptyState title="No runs yet.">
      <p>
        Start one from a{" "}
        <Link to="/$team/datasets" params={{ team }} className="text-accent underline">
          dataset
        </Link>
        . Its loss curve appears here after the first step.
      </p>
      <ForEditors>
        <Link to="/$team/runs/new" params={{ team }} className={buttonClass()}>
          New run
        </Link>
      </ForEditors>
    </EmptyState>
  );
}

function KeyHint({ name }: { name: string }) {
  return <kbd className="rounded-box border border-control px-1 font-sans">{name}</kbd>;
}
