import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { PendingInvitation } from "@/api/types";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Email } from "@/components/Email";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { invitationsQuery, revokeInvitation } from "@/features/teams/queries";

/** Pending invitations. */
export function InvitationTable({ team }: { team: string }) {
  const { data: invitations } = useSuspenseQuery(invitationsQuery(team));
  const [revoking, setRevoking] = useState<PendingInvitation | null>(null);
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: (invitation: string) => revokeInvitation(team, invitation),
    onSuccess: async () => {
      setRevoking(null);
      await client.invalidateQueries({ queryKey: invitationsQuery(team).queryKey });
    },
  });
  if (invitations.length === 0) return <p className="text-soft">No pending invitations.</p>;
  return (
    <>
      <Table
        label="Invitations"
        head={
          <>
            <Th>email</Th>
            <Th className="max-tablet:hidden">role</Th>
            <Th>expires</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {invitations.map((invitation) => (
          <tr key={invitation.id} className={rowClass}>
            <Td className="font-medium">
              <Email address={invitation.email} />
              <span className="block text-small font-normal text-soft tablet:hidden">{invitation.role}</span>
            </Td>
            <Td className="text-soft max-tablet:hidden">{invitation.role}</Td>
            <Td>
              <Time at={invitation.expires} />
            </Td>
            <Td className="text-right">
              <button
                type="button"
                className="text-bad hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                onClick={() => {
                  setRevoking(invitation);
                }}
              >
                Revoke<span className="sr-only"> the invitation for {invitation.email}</span>
              </button>
            </Td>
          </tr>
        ))}
      </Table>
      {revoking !== null && (
        <ConfirmDialog
          title={`Revoke the invitation for ${revoking.email}?`}
          consequence="The link stops working. You can invite them again."
          confirmLabel="Revoke"
          cancelLabel="Cancel"
          busy={revoke.isPending}
          error={revoke.error}
          onConfirm={() => {
            revoke.mutate(revoking.id);
          }}
          onClose={() => {
            revoke.reset();
            setRevoking(null);
          }}
        />
      )}
    </>
  );
}
