import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Quota } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { setQuota, teamQuery } from "@/features/teams/queries";
import { DEVICE_LABELS } from "@/features/teams/usage/usageView";

/** Changes how many slots the team may occupy at once; for site admins. */
export function QuotaForm({ team }: { team: string }) {
  const { data } = useSuspenseQuery(teamQuery(team));
  return (
    <div className="panel mt-3 flex flex-wrap gap-x-8 gap-y-4 p-4">
      {data.quota.map((quota) => (
        <DeviceLimit key={`${quota.device} ${quota.limit}`} team={team} quota={quota} />
      ))}
    </div>
  );
}

function DeviceLimit({ team, quota: { device, limit } }: { team: string; quota: Quota }) {
  const [typed, setTyped] = useState(String(limit));
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () => setQuota(team, device, Number(typed)),
    onSuccess: () => client.invalidateQueries({ queryKey: ["team", team] }),
  });
  const isValid = /^\d{1,6}$/.test(typed.trim());
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (isValid) change.mutate();
      }}
    >
      <div className="flex items-end gap-3">
        <Field label={`Limit of ${DEVICE_LABELS[device]?.slots ?? device}`} error={isValid ? undefined : "Write a whole number."}>
          {(control) => (
            <TextInput
              {...control}
              inputMode="numeric"
              autoComplete="off"
              className="w-32"
              value={typed}
              onChange={(event) => {
                setTyped(event.target.value);
              }}
            />
          )}
        </Field>
        <Button type="submit" disabled={!isValid || change.isPending || Number(typed) === limit}>
          Save
        </Button>
      </div>
      {change.error !== null && <ErrorNote error={change.error} />}
    </form>
  );
}
