import { Link, useParams, useSearch } from "@tanstack/react-router";
import { NewRunForm } from "@/app/routes/newRun/NewRunForm";
import { ForkOrigin } from "@/app/routes/newRun/ForkOrigin";
import { useForkStates } from "@/app/routes/newRun/useForkStates";
import { useSourceRun } from "@/app/routes/newRun/useSourceRun";
import { copyBase } from "@/features/runs/form/runName";
import { forkRun } from "@/features/runs/form/copyRun";
import type { SpecValues } from "@/features/runs/spec/specFields";

/** The form filled in from a run to fork. */
export function ForkForm({ runId }: { runId: string }) {
  const { team } = useParams({ from: "/$team" });
  const { checkpoint } = useSearch({ from: "/$team/runs/new" });
  const source = useSourceRun(runId);
  const { chosen } = useForkStates(team, runId, checkpoint);
  return (
    <NewRunForm
      source={withMoreSteps(source, chosen?.step ?? 0)}
      nameBase={copyBase(source.run.name)}
      origin={`fork.${runId}`}
      startStep={chosen?.step ?? 0}
      {...(chosen === undefined ? {} : { checkpoint: chosen.id })}
      modelNote={
        <>
          A fork continues the same model.{" "}
          <Link to="/$team/runs/new" params={{ team }} search={{ like: runId }} className="text-accent underline underline-offset-2">
            Clone the run
          </Link>{" "}
          to change it.
        </>
      }
      submitLabel="Start fork"
      submit={(spec, key) => {
        // Sends the checkpoint shown above, not one saved in the meantime.
        if (chosen === undefined) throw new Error(`Choose a checkpoint of ${source.run.name} to fork from.`);
        // Another checkpoint makes another request.
        return forkRun(team, source.run, chosen.id, spec, `${key}.${chosen.id}`);
      }}
    >
      <ForkOrigin team={team} run={source.run} checkpoint={checkpoint} />
    </NewRunForm>
  );
}

/** The values of the run to fork. If the run ended at the checkpoint, the fork gets as many additional steps, because it needs more steps than the run. */
function withMoreSteps({ run, values }: ReturnType<typeof useSourceRun>, step: number): SpecValues {
  const { steps } = run.spec.schedule;
  return steps > step ? values : { ...values, "schedule.steps": String(step + steps) };
}
