import { Link, useNavigate, useParams, useRouteContext, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { Boundary } from "@/components/Boundary";
import { buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ForEditors } from "@/components/ForEditors";
import { TitleRow } from "@/components/TitleRow";
import { ColumnMenu } from "@/features/runs/ColumnMenu";
import { FIRST_COLUMNS, parseColumns, storeColumns, storedColumns } from "@/features/runs/runColumns";
import { RunFilterBar } from "@/features/runs/RunFilterBar";
import type { RunFilter, RunsSearch } from "@/features/runs/runFilter";
import { RunTable } from "@/features/runs/RunTable";
import { useMayEdit } from "@/lib/mayEdit";
import { useHotkeys } from "@/lib/useHotkeys";

export function RunsPage() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const { columns: named, page = 1, ...filter } = useSearch({ from: "/$team/runs" });
  const navigate = useNavigate();
  const columns = useMemo(() => parseColumns(named) ?? storedColumns(me.id) ?? FIRST_COLUMNS, [named, me.id]);
  const show = useCallback(
    (search: (old: RunsSearch) => RunsSearch) =>
      void navigate({ to: "/$team/runs", params: { team }, search, replace: true, resetScroll: false }),
    [navigate, team],
  );
  const choose = (next: RunFilter) => {
    show(({ columns }) => ({ ...next, columns }));
  };
  const clear = () => {
    choose({});
  };
  const onPages = useCallback(
    (page: number) => {
      show((old) => ({ ...old, page }));
    },
    [show],
  );
  const mayEdit = useMayEdit();
  const keys = useMemo((): Record<string, () => void> => {
    const start = () => void navigate({ to: "/$team/runs/new", params: { team } });
    return mayEdit ? { n: start } : {};
  }, [mayEdit, navigate, team]);
  useHotkeys(keys);
  return (
    <>
      <TitleRow
        title="Runs"
        actions={
          <ForEditors>
            <Link to="/$team/runs/new" params={{ team }} className={buttonClass("primary")}>
              New run
            </Link>
          </ForEditors>
        }
      />
      <RunFilterBar filter={filter} onFilter={choose} onClear={clear}>
        <ColumnMenu
          columns={columns}
          onChange={(next) => {
            storeColumns(me.id, next);
            show((old) => ({ ...old, columns: next.join(",") }));
          }}
        />
      </RunFilterBar>
      <Boundary>
        <RunTable
          key={team}
          team={team}
          filter={filter}
          columns={columns}
          pages={page}
          onPages={onPages}
          onFilter={choose}
          onClear={clear}
          onCompare={(runs) => void navigate({ to: "/$team/compare", params: { team }, search: { runs: runs.join(",") } })}
          empty={<NoRuns team={team} />}
        />
      </Boundary>
      <p className="mt-3 text-small text-soft max-tablet:hidden">
        <Key name="j" /> <Key name="k" /> walk down and up, <Key name="↵" /> opens, <Key name="x" /> selects, <Key name="/" /> filters
        <ForEditors>
          , <Key name="n" /> starts a new run
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
        . Its curve appears here with the first step.
      </p>
      <ForEditors>
        <Link to="/$team/runs/new" params={{ team }} className={buttonClass()}>
          New run
        </Link>
      </ForEditors>
    </EmptyState>
  );
}

function Key({ name }: { name: string }) {
  return <kbd className="rounded-box border border-control px-1 font-sans">{name}</kbd>;
}
