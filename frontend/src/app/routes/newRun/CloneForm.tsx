import { Link, useParams } from "@tanstack/react-router";
import { NewRunForm } from "@/app/routes/newRun/NewRunForm";
import { useSourceRun } from "@/app/routes/newRun/useSourceRun";
import { copyBase } from "@/features/runs/form/runName";
import { cloneRun } from "@/features/runs/form/copyRun";

/** The form filled in from a run to clone. */
export function CloneForm({ runId }: { runId: string }) {
  const { team } = useParams({ from: "/$team" });
  const source = useSourceRun(runId);
  return (
    <NewRunForm
      source={source.values}
      nameBase={copyBase(source.run.name)}
      origin={`like.${runId}`}
      submit={(spec, key) => cloneRun(team, source.run, spec, key)}
    >
      <p className="text-soft">
        Copied from{" "}
        <Link to="/$team/runs/$runId/$tab" params={{ team, runId, tab: "configuration" }} className="text-accent underline underline-offset-2">
          {source.run.name}
        </Link>
        . It starts at step 0; change what should differ.
      </p>
    </NewRunForm>
  );
}
