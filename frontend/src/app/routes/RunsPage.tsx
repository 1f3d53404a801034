import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { Boundary } from "@/components/Boundary";
import { buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ForEditors } from "@/components/ForEditors";
import { TitleRow } from "@/components/TitleRow";
import { RunFilterBar } from "@/features/runs/RunFilterBar";
import type { RunFilter } from "@/features/runs/runFilter";
import { RunTable } from "@/features/runs/RunTable";
import { useMayEdit } from "@/lib/mayEdit";
import { useHotkeys } from "@/lib/useHotkeys";

export function RunsPage() {
  const { team } = useParams({ from: "/$team" });
  const filter = useSearch({ from: "/$team/runs" });
  const navigate = useNavigate();
  const choose = (next: RunFilter) => void navigate({ to: ".", search: next, replace: true, resetScroll: false });
  const clear = () => {
    choose({});
  };
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
      <RunFilterBar filter={filter} onFilter={choose} onClear={clear} />
      <Boundary>
        <RunTable team={team} filter={filter} onFilter={choose} onClear={clear} empty={<NoRuns team={team} />} />
      </Boundary>
      <p className="mt-4 text-small text-soft max-tablet:hidden">
        <Key name="j" /> <Key name="k" /> walk down and up, <Key name="↵" /> opens, <Key name="/" /> filters
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
