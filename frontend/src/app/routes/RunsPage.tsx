import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useMemo } from "react";
import { Boundary } from "@/components/Boundary";
import { buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { TitleRow } from "@/components/TitleRow";
import { RunTable } from "@/features/runs/RunTable";
import { useHotkeys } from "@/lib/useHotkeys";

export function RunsPage() {
  const { team } = useParams({ from: "/$team" });
  const navigate = useNavigate();
  const keys = useMemo(() => ({ n: () => void navigate({ to: "/$team/runs/new", params: { team } }) }), [navigate, team]);
  useHotkeys(keys);
  return (
    <>
      <TitleRow
        title="Runs"
        actions={
          <Link to="/$team/runs/new" params={{ team }} className={buttonClass("primary")}>
            New run
          </Link>
        }
      />
      <Boundary>
        <RunTable team={team} empty={<NoRuns team={team} />} />
      </Boundary>
      <p className="mt-4 text-small text-soft max-tablet:hidden">
        <Key name="j" /> <Key name="k" /> walk down and up, <Key name="↵" /> opens, <Key name="n" /> starts a new run
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
      <Link to="/$team/runs/new" params={{ team }} className={buttonClass()}>
        New run
      </Link>
    </EmptyState>
  );
}

function Key({ name }: { name: string }) {
  return <kbd className="rounded-box border border-control px-1 font-sans">{name}</kbd>;
}
