import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { OpenInvitation } from "@/api/types";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { invitationsQuery, revokeInvitation } from "@/features/teams/queries";

/** Invitations that nobody has used yet. */
export function InvitationTable({ team }: { team: string }) {
  const { data: invitations } = useSuspenseQuery(invitationsQuery(team));
  const [doomed, setDoomed] = useState<OpenInvitation | null>(null);
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: (invitation: string) => revokeInvitation(team, invitation),
    onSuccess: async () => {
      setDoomed(null);
      await client.invalidateQueries({ queryKey: invitationsQuery(team).queryKey });
    },
  });
  if (invitations.length === 0) return <p className="text-soft">Nobody is invited who has not come yet.</p>;
  return (
    <>
      <Table
        label="Invitations"
        head={
          <>
            <Th>e-mail</Th>
            <Th>role</Th>
            <Th>works until</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {invitations.map((one) => (
          <tr key={one.id} className={rowClass}>
            <Td className="font-medium">{one.email}</Td>
            <Td className="text-soft">{one.role}</Td>
            <Td>
              <Time at={one.expires} />
            </Td>
            <Td className="text-right">
              <button
                type="button"
                className="text-bad hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                onClick={() => {
                  setDoomed(one);
                }}
              >
                Revoke<span className="sr-only"> the invitation of {one.email}</span>
              </button>
            </Td>
          </tr>
        ))}
      </Table>
      {doomed !== null && (
        <ConfirmDialog
          title={`Revoke the invitation of ${doomed.email}?`}
          consequence="Its link works no more. You can invite them again."
          verb="Revoke"
          keep="Keep it"
          busy={revoke.isPending}
          error={revoke.error}
          onConfirm={() => {
            revoke.mutate(doomed.id);
          }}
          onClose={() => {
            revoke.reset();
            setDoomed(null);
          }}
        />
      )}
    </>
  );
}
