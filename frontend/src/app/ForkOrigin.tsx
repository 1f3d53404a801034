import { useSuspenseQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { Time } from "@/components/Time";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { count } from "@/lib/format";

interface Props {
  team: string;
  run: Run;
  /** The state that the address names. */
  checkpoint: string | undefined;
}

/** Which state of which run a fork goes on from. */
export function ForkOrigin({ team, run, checkpoint }: Props) {
  const { data } = useSuspenseQuery(checkpointsQuery(team, run.id, false));
  const navigate = useNavigate();
  const states = data.filter(({ kind, valid }) => kind === "state" && valid).sort((one, other) => other.step - one.step);
  const chosen = states.find(({ id }) => id === checkpoint) ?? states[0];
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
        <p className="text-small text-soft">
          {chosen === undefined
            ? "It has no valid state to go on from yet; wait for its next checkpoint, or copy the run instead."
            : "What the state’s tensors depend on has to stay: the model, its vocabulary and the kind of optimizer. The parent is not touched."}
        </p>
      </div>
      {states.length > 1 && chosen !== undefined && (
        <div className="w-56">
          <Field label="State">
            {(control) => (
              <Select
                {...control}
                value={chosen.id}
                onChange={(event) =>
                  void navigate({
                    to: ".",
                    search: (old) => ({ ...old, checkpoint: event.target.value }),
                    replace: true,
                    resetScroll: false,
                  })
                }
              >
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
