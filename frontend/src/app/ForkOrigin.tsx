import { Link, useNavigate } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { useForkStates } from "@/app/useForkStates";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { Time } from "@/components/Time";
import { count } from "@/lib/format";

interface Props {
  team: string;
  run: Run;
  /** The state that the address names. */
  checkpoint: string | undefined;
}

const NO_STATE = "The run has no valid state to go on from now; wait for its next checkpoint, or copy the run instead.";

/** Which state of which run a fork goes on from. */
export function ForkOrigin({ team, run, checkpoint }: Props) {
  const { states, chosen } = useForkStates(team, run.id, checkpoint);
  const navigate = useNavigate();
  const gone = chosen === undefined && (checkpoint !== undefined || states.length > 0);
  return (
    <section aria-label="Where it goes on from" className="panel flex flex-wrap items-end gap-x-6 gap-y-3 px-4 py-3">
      <div className="min-w-60 flex-1">
        <p>
          Goes on from{" "}
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
        {gone ? (
          <p role="alert" className="text-small text-bad">
            The state that this page was opened for is not there any more: it was deleted, or is no longer valid.{" "}
            {states.length > 0 ? "Choose another one." : NO_STATE}
          </p>
        ) : (
          <p className="text-small text-soft">
            {chosen === undefined
              ? NO_STATE
              : "What the state’s tensors depend on has to stay: the model, its vocabulary and the kind of optimizer. The parent is not touched."}
          </p>
        )}
      </div>
      {(states.length > 1 || (gone && states.length > 0)) && (
        <div className="w-56">
          <Field label="State">
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
                {gone && (
                  <option value="" disabled>
                    choose a state
                  </option>
                )}
                {states.map(({ id, step }, index) => (
                  <option key={id} value={id}>
                    step {count(step)}
                    {index === 0 ? ", the newest" : ""}
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
