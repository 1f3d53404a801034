import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { TeamLimits } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { LimitFieldset } from "@/features/teams/limits/LimitFieldset";
import { TEAM_FIELDS } from "@/features/teams/limits/limitFields";
import { limitsQuery, setTeamLimits } from "@/features/teams/limits/limitQueries";
import { useTypedLimits } from "@/features/teams/limits/useTypedLimits";

const PRIORITIES = ["low", "normal", "high"] as const;
const ROLE_FIELDS = [
  ["editor_priority", "Highest priority of editors"],
  ["owner_priority", "Highest priority of owners"],
] as const;

/** Changes the limits of the team besides its slots; for site admins. */
export function TeamLimitsForm({ team }: { team: string }) {
  const { data } = useSuspenseQuery(limitsQuery(team));
  return <Form key={JSON.stringify(data.limits)} team={team} current={data.limits} />;
}

function Form({ team, current }: { team: string; current: TeamLimits }) {
  const { typed, onType, isValid, limits } = useTypedLimits(TEAM_FIELDS, current);
  const [priorities, setPriorities] = useState({ editor_priority: current.editor_priority, owner_priority: current.owner_priority });
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () => setTeamLimits(team, { ...limits, ...priorities }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["team", team, "limits"] }),
  });
  return (
    <form
      className="panel mt-3 flex flex-col gap-4 p-4"
      onSubmit={(event) => {
        event.preventDefault();
        if (isValid) change.mutate();
      }}
    >
      <div className="grid gap-4 tablet:grid-cols-3">
        <LimitFieldset fields={TEAM_FIELDS} typed={typed} onType={onType} />
        {ROLE_FIELDS.map(([name, label]) => (
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
      <div>
        <Button type="submit" disabled={!isValid || change.isPending}>
          Save limits
        </Button>
      </div>
      {change.error !== null && <ErrorNote error={change.error} />}
    </form>
  );
}
