import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import type { MemberLimits, MemberLimitUse } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { LimitFieldset } from "@/features/teams/limits/LimitFieldset";
import { MEMBER_FIELDS } from "@/features/teams/limits/limitFields";
import { setMemberLimits } from "@/features/teams/limits/limitQueries";
import { useTypedLimits } from "@/features/teams/limits/useTypedLimits";

interface Props {
  team: string;
  member: MemberLimitUse;
  onClose: () => void;
}

/** Changes the limits of a member; for owners. */
export function MemberLimitDialog({ team, member, onClose }: Props) {
  const { typed, onType, isValid, limits } = useTypedLimits(MEMBER_FIELDS, member.limits);
  const [priority, setPriority] = useState<string>(member.limits.highest_priority ?? "");
  const formId = useId();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () => setMemberLimits(team, member.user, { ...limits, highest_priority: priority === "" ? null : (priority as NonNullable<MemberLimits["highest_priority"]>) }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["team", team, "limits"] });
      onClose();
    },
  });
  return (
    <Dialog
      title={`Limits of ${member.name}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" form={formId} disabled={change.isPending}>
            Save
          </Button>
        </>
      }
    >
      <form
        id={formId}
        className="flex flex-col gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          if (isValid) change.mutate();
        }}
      >
        <div className="grid gap-4 tablet:grid-cols-2">
          <LimitFieldset fields={MEMBER_FIELDS} typed={typed} onType={onType} />
          <Field label="Highest priority">
            {(control) => (
              <Select
                {...control}
                value={priority}
                onChange={(event) => {
                  setPriority(event.target.value);
                }}
              >
                <option value="">same as the role</option>
                <option>low</option>
                <option>normal</option>
                <option>high</option>
              </Select>
            )}
          </Field>
        </div>
        {change.error !== null && <ErrorNote error={change.error} />}
      </form>
    </Dialog>
  );
}
