import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { TeamLimits } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { LimitFieldset } from "@/features/teams/limits/LimitFieldset";
import { limitsQuery } from "@/features/teams/limits/limitQueries";
import { changeTeamLimits, currentValues, guaranteeProblems, isSame, limitGroups, PRIORITY_FIELDS, type ChosenLimits } from "@/features/teams/limits/teamLimits";
import { useTypedLimits } from "@/features/teams/limits/useTypedLimits";
import { teamQuery } from "@/features/teams/queries";

const PRIORITIES = ["low", "normal", "high"] as const;

/** Changes all limits of the team; for site admins. */
export function TeamLimitsForm({ team }: { team: string }) {
  const { quota, storage } = useSuspenseQuery(teamQuery(team)).data;
  const { limits: otherLimits } = useSuspenseQuery(limitsQuery(team)).data;
  const current = { quota, filesBytes: storage.limit_bytes, limits: otherLimits };
  const groups = limitGroups(quota);
  const { typed, onType, reset, isValid, limits } = useTypedLimits(
    groups.flatMap(({ fields }) => fields),
    currentValues(current),
  );
  const [chosenPriorities, setPriorities] = useState<Partial<ChosenLimits["priorities"]>>({});
  const { editor_priority, owner_priority } = otherLimits;
  const priorities = { editor_priority, owner_priority, ...chosenPriorities };
  const [warnings, setWarnings] = useState<readonly string[]>([]);
  const client = useQueryClient();
  const refresh = () => client.invalidateQueries({ queryKey: ["team", team] });
  const change = useMutation({
    mutationFn: (chosen: ChosenLimits) =>
      changeTeamLimits(team, current, chosen, (warning) => {
        setWarnings((before) => [...before, warning]);
      }),
    onMutate: () => {
      setWarnings([]);
    },
    onSuccess: async () => {
      await refresh();
      reset();
      setPriorities({});
    },
    // What was saved before the refusal is current now; the rest stays typed.
    onError: refresh,
  });
  const problems = guaranteeProblems(quota, limits);
  const chosen = { values: limits, priorities };
  const hasMistakes = !isValid || Object.keys(problems).length > 0;
  return (
    <section>
      <h4 className="mb-2 font-medium">Change the limits</h4>
      <form
        className="panel flex flex-col gap-6 p-4"
        onSubmit={(event) => {
          event.preventDefault();
          if (!hasMistakes) change.mutate(chosen);
        }}
      >
        {groups.map(({ title, fields }) => (
          <fieldset key={title}>
            <legend className="mb-2 text-soft">{title}</legend>
            <div className="grid gap-4 tablet:grid-cols-4">
              <LimitFieldset fields={fields} typed={typed} onType={onType} problems={problems} />
            </div>
          </fieldset>
        ))}
        <fieldset>
          <legend className="mb-2 text-soft">Highest priority of runs</legend>
          <div className="grid gap-4 tablet:grid-cols-4">
            {PRIORITY_FIELDS.map(([name, label]) => (
              <Field key={name} label={label}>
                {(control) => (
                  <Select
                    {...control}
                    value={priorities[name]}
                    onChange={(event) => {
                      setPriorities({ ...chosenPriorities, [name]: event.target.value as TeamLimits["editor_priority"] });
                    }}
                  >
                    {PRIORITIES.map((priority) => (
                      <option key={priority}>{priority}</option>
                    ))}
                  </Select>
                )}
              </Field>
            ))}
          </div>
        </fieldset>
        <div>
          <Button type="submit" disabled={change.isPending || isSame(current, chosen)}>
            Save limits
          </Button>
        </div>
        {warnings.map((warning) => (
          <p key={warning} role="status" className="text-small text-warn">
            {warning}
          </p>
        ))}
        {change.error !== null && <ErrorNote error={change.error} />}
      </form>
    </section>
  );
}
