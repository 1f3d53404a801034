import { Link, useParams, useSearch } from "@tanstack/react-router";
import { CloneForm } from "@/app/routes/newRun/CloneForm";
import { NewRunForm } from "@/app/routes/newRun/NewRunForm";
import { ForkForm } from "@/app/routes/newRun/ForkForm";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { EmptyState } from "@/components/EmptyState";
import { TitleRow } from "@/components/TitleRow";
import { useCanEdit } from "@/lib/permissions";

export function NewRunPage() {
  const { team } = useParams({ from: "/$team" });
  const { fork } = useSearch({ from: "/$team/runs/new" });
  return (
    <>
      <TitleRow
        title={fork === undefined ? "New run" : "Fork"}
        parent={
          <Link to="/$team/runs" params={{ team }} className="hover:text-accent">
            Runs
          </Link>
        }
      />
      {useCanEdit() ? (
        <AsyncBoundary>
          <FormForSource />
        </AsyncBoundary>
      ) : (
        <EmptyState title="Viewers cannot start runs.">Ask an owner of the team to make you an editor.</EmptyState>
      )}
    </>
  );
}

/** The form: empty, or filled in from the run to clone or fork. */
function FormForSource() {
  const { like, fork } = useSearch({ from: "/$team/runs/new" });
  if (fork !== undefined) return <ForkForm key={fork} runId={fork} />;
  return like === undefined ? <NewRunForm source={{}} /> : <CloneForm key={like} runId={like} />;
}
