import { Link, useNavigate } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { useForkStates } from "@/app/routes/newRun/useForkStates";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { Time } from "@/components/Time";
import { count, exactNumber } from "@/lib/format";

interface Props {
  team: string;
  run: Run;
  /** The checkpoint named in the address. */
  checkpoint: string | undefined;
}

/** Its last attempt may have diverged while the reason is that no attempt is left. */
const DIVERGED = /\bdiverged\b/i;
const NO_STATE_TEXT = "The run has no valid checkpoint to continue from. Wait for its next checkpoint, or clone the run instead.";

/** The run and checkpoint that a fork continues from. */
export function ForkOrigin({ team, run, checkpoint }: Props) {
  const { states, chosen } = useForkStates(team, run.id, checkpoint);
  const navigate = useNavigate();
  const isMissing = chosen === undefined && (checkpoint !== undefined || states.length > 0);
  return (
    <section aria-label="Fork origin" className="panel flex flex-wrap items-end gap-x-6 gap-y-3 px-4 py-3">
      <div className="min-w-60 flex-1">
        <p>
          Continues from{" "}
          <Link
            to="/$team/runs/$runId/$tab"
            params={{ team, runId: run.id, tab: "checkpoints" }}
            className="text-accent underline underline-offset-2"
          >
            {run.name}
          </Link>
          {chosen !== undefined && (
            <>
              {" "}
              at step {count(chosen.step)}, saved <Time at={chosen.created} />
            </>
          )}
          .
        </p>
        {isMissing ? (
          <p role="alert" className="text-small text-bad">
            The checkpoint that this page was opened for no longer exists: it was deleted or is no longer valid.{" "}
            {states.length > 0 ? "Choose another one." : NO_STATE_TEXT}
          </p>
        ) : (
          <p className="text-small text-soft">
            {chosen === undefined
              ? NO_STATE_TEXT
              : "Vocabulary and optimizer kind must stay the same, because the checkpoint's tensors depend on them. The parent run is not changed."}
          </p>
        )}
        {run.state === "failed" && DIVERGED.test(run.sentence) && (
          <p className="text-small text-warn">
            It diverged with a learning rate of {exactNumber(run.spec.optimizer.learning_rate)}. Lower the rate below, or lengthen the warm-up; otherwise the fork is likely to diverge, too.
          </p>
        )}
      </div>
      {(states.length > 1 || (isMissing && states.length > 0)) && (
        <div className="w-56">
          <Field label="Checkpoint">
            {(control) => (
              <Select
                {...control}
                value={chosen?.id ?? ""}
                onChange={(event) =>
                  void navigate({
                    to: ".",
                    search: (old) => ({ ...old, checkpoint: event.target.value }),
                    replace: true,
                    resetScroll: false,
                  })
                }
              >
                {isMissing && (
                  <option value="" disabled>
                    choose a checkpoint
                  </option>
                )}
                {states.map(({ id, step }, index) => (
                  <option key={id} value={id}>
                    step {count(step)}
                    {index === 0 ? " (newest)" : ""}
                  </option>
                ))}
              </Select>
            )}
          </Field>
        </div>
      )}
    </section>
  );
}
