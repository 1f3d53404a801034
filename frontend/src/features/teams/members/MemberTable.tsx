import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Member } from "@/api/types";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Email } from "@/components/Email";
import { Select } from "@/components/Select";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { describeChange, type MemberChange } from "@/features/teams/members/memberChange";
import { ROLE_LABELS } from "@/features/teams/members/roles";
import { changeRole, leaveTeam, membersQuery, removeMember } from "@/features/teams/queries";

interface Props {
  team: string;
  /** Id of the signed-in person. */
  me: string;
  /** The signed-in person's own role has changed. */
  onChanged: () => Promise<void>;
  onLeft: () => Promise<void>;
}

/** The people of the team. Owners change roles and remove people; everybody but the last owner can leave. */
export function MemberTable({ team, me, onChanged, onLeft }: Props) {
  const { data: members } = useSuspenseQuery(membersQuery(team));
  const [asked, setAsked] = useState<MemberChange | null>(null);
  const [cancelsRuns, setCancelsRuns] = useState(false);
  const client = useQueryClient();
  const close = () => {
    setAsked(null);
    setCancelsRuns(false);
  };
  const change = useMutation({
    mutationFn: async ({ member, to }: MemberChange) => {
      if (to === "left") await leaveTeam(team);
      else if (to === "removed") await removeMember(team, member.id, cancelsRuns ? "cancel" : "keep");
      else await changeRole(team, member.id, to);
    },
    onSuccess: async (_, { member, to }) => {
      close();
      if (to === "left" || (to === "removed" && member.id === me)) return onLeft();
      await client.invalidateQueries({ queryKey: ["team", team] });
      if (member.id === me) await onChanged();
    },
  });
  const owners = members.filter(({ role }) => role === "owner");
  const isOwner = owners.some(({ id }) => id === me);
  const question = asked === null ? null : describeChange(asked, asked.member.id === me);
  return (
    <>
      <Table
        label="Members"
        head={
          <>
            <Th>name</Th>
            <Th className="max-tablet:hidden">email</Th>
            <Th>role</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {members.map((member) => {
          const isLastOwner = member.role === "owner" && owners.length === 1;
          return (
            <tr key={member.id} className={rowClass}>
              <Td>
                <span className="font-medium">{member.name}</span>
                {member.id === me && <span className="text-soft"> (you)</span>}
                <span className="block text-small text-soft tablet:hidden">{member.service ? "service account" : <Email address={member.email} />}</span>
              </Td>
              <Td className="max-tablet:hidden">{member.service ? <span className="text-soft">service account</span> : <Email address={member.email} />}</Td>
              <Td className="text-soft">
                {isOwner && !isLastOwner ? (
                  <Select
                    aria-label={`Role of ${member.name}`}
                    className="w-28"
                    value={member.role}
                    onChange={(event) => {
                      setAsked({ member, to: event.target.value as Member["role"] });
                    }}
                  >
                    {(Object.keys(ROLE_LABELS) as Member["role"][])
                      .filter((role) => !(member.service && role === "owner"))
                      .map((role) => (
                        <option key={role}>{role}</option>
                      ))}
                  </Select>
                ) : (
                  <>
                    {member.role}
                    {isLastOwner && <span className="block text-small">The only owner cannot leave. Make another member an owner first.</span>}
                  </>
                )}
              </Td>
              <Td className="text-right">
                {!isLastOwner && !member.service && (isOwner || member.id === me) && (
                  <button
                    type="button"
                    className="text-bad hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                    onClick={() => {
                      setAsked({ member, to: member.id === me ? "left" : "removed" });
                    }}
                  >
                    {member.id === me ? "Leave" : "Remove"}
                    {member.id !== me && <span className="sr-only"> {member.name}</span>}
                  </button>
                )}
              </Td>
            </tr>
          );
        })}
      </Table>
      {asked !== null && question !== null && (
        <ConfirmDialog
          title={question.title}
          consequence={question.consequence}
          confirmLabel={question.confirm}
          cancelLabel="Cancel"
          busy={change.isPending}
          error={change.error}
          onConfirm={() => {
            change.mutate(asked);
          }}
          onClose={() => {
            change.reset();
            close();
          }}
        >
          {asked.to === "removed" && (
            <label className="flex items-center gap-2">
              <input
                type="checkbox"
                checked={cancelsRuns}
                onChange={(event) => {
                  setCancelsRuns(event.target.checked);
                }}
              />
              Cancel their unfinished runs
            </label>
          )}
        </ConfirmDialog>
      )}
    </>
  );
}
