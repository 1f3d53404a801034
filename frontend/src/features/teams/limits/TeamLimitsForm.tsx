import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { TeamLimits } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { LimitFieldset } from "@/features/teams/limits/LimitFieldset";
import { limitsQuery } from "@/features/teams/limits/limitQueries";
import { changeTeamLimits, currentValues, guaranteeProblems, isSame, limitGroups, PRIORITY_FIELDS, type ChosenLimits, type CurrentLimits } from "@/features/teams/limits/teamLimits";
import { useTypedLimits } from "@/features/teams/limits/useTypedLimits";
import { teamQuery } from "@/features/teams/queries";

const PRIORITIES = ["low", "normal", "high"] as const;

/** Changes all limits of the team; for site admins. */
export function TeamLimitsForm({ team }: { team: string }) {
  const { quota, storage } = useSuspenseQuery(teamQuery(team)).data;
  const { limits } = useSuspenseQuery(limitsQuery(team)).data;
  const current = { quota, filesBytes: storage.limit_bytes, limits };
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (chosen: ChosenLimits) => changeTeamLimits(team, current, chosen),
    onSettled: () => client.invalidateQueries({ queryKey: ["team", team] }),
  });
  return (
    <div className="panel flex flex-col gap-3 p-4">
      <Form key={JSON.stringify([currentValues(current), limits])} current={current} isSaving={change.isPending} onSave={change.mutate} />
      {change.data?.map((warning) => (
        <p key={warning} role="status" className="text-small text-warn">
          {warning}
        </p>
      ))}
      {change.error !== null && <ErrorNote error={change.error} />}
    </div>
  );
}

interface FormProps {
  current: CurrentLimits;
  isSaving: boolean;
  onSave: (chosen: ChosenLimits) => void;
}

function Form({ current, isSaving, onSave }: FormProps) {
  const groups = limitGroups(current.quota);
  const { typed, onType, isValid, limits } = useTypedLimits(
    groups.flatMap(({ fields }) => fields),
    currentValues(current),
  );
  const { editor_priority, owner_priority } = current.limits;
  const [priorities, setPriorities] = useState({ editor_priority, owner_priority });
  const problems = guaranteeProblems(current.quota, limits);
  const chosen = { values: limits, priorities };
  const canSave = isValid && Object.keys(problems).length === 0 && !isSaving && !isSame(current, chosen);
  return (
    <form
      className="flex flex-col gap-6"
      onSubmit={(event) => {
        event.preventDefault();
        if (canSave) onSave(chosen);
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
                    setPriorities({ ...priorities, [name]: event.target.value as TeamLimits["editor_priority"] });
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
        <Button type="submit" disabled={!canSave}>
          Save limits
        </Button>
      </div>
    </form>
  );
}
