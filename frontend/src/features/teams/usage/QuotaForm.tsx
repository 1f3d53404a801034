import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Quota } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { setQuota, teamQuery } from "@/features/teams/queries";
import { count } from "@/lib/format";
import { DEVICE_LABELS } from "@/features/teams/usage/usageView";

/** The largest limit that the API takes. */
const MOST_SLOTS = 1_000_000;

/** Changes how many slots the team may occupy at once, and how many of them are guaranteed; for site admins. */
export function QuotaForm({ team }: { team: string }) {
  const { data } = useSuspenseQuery(teamQuery(team));
  return (
    <div className="panel mt-3 flex flex-wrap gap-x-8 gap-y-4 p-4">
      {data.quota.map((quota) => (
        <DeviceLimit key={quota.device} team={team} quota={quota} />
      ))}
    </div>
  );
}

function DeviceLimit({ team, quota: { device, limit, guaranteed_slots: share } }: { team: string; quota: Quota }) {
  const [typed, setTyped] = useState({ limit: String(limit), share: String(share) });
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () => setQuota(team, device, Number(typed.limit), Number(typed.share)),
    onSuccess: () => client.invalidateQueries({ queryKey: ["team", team] }),
  });
  const slots = DEVICE_LABELS[device]?.slots ?? device;
  const problems = {
    limit: numberProblem(typed.limit),
    share: numberProblem(typed.share) ?? (Number(typed.share) > Number(typed.limit) ? "At most the limit." : undefined),
  };
  const isValid = problems.limit === undefined && problems.share === undefined;
  const isUnchanged = Number(typed.limit) === limit && Number(typed.share) === share;
  const field = (name: "limit" | "share", label: string) => (
    <Field label={label} error={problems[name]}>
      {(control) => (
        <TextInput
          {...control}
          inputMode="numeric"
          autoComplete="off"
          className="w-32"
          value={typed[name]}
          onChange={(event) => {
            setTyped({ ...typed, [name]: event.target.value });
          }}
        />
      )}
    </Field>
  );
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (isValid) change.mutate();
      }}
    >
      <div className="flex flex-wrap items-end gap-3">
        {field("limit", `Limit of ${slots}`)}
        {field("share", `Guaranteed ${slots}`)}
        <Button type="submit" disabled={!isValid || change.isPending || isUnchanged}>
          Save
        </Button>
      </div>
      {change.data?.warning != null && (
        <p role="status" className="max-w-96 text-small text-warn">
          {change.data.warning}
        </p>
      )}
      {change.error !== null && <ErrorNote error={change.error} />}
    </form>
  );
}

function numberProblem(typed: string): string | undefined {
  const isValid = /^\d+$/.test(typed.trim()) && Number(typed) <= MOST_SLOTS;
  return isValid ? undefined : `Write a whole number from 0 to ${count(MOST_SLOTS)}.`;
}
