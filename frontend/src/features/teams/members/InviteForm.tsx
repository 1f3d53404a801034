import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import type { Member } from "@/api/types";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";
import { Time } from "@/components/Time";
import { ROLE_LABELS } from "@/features/teams/members/roles";
import { invitationsQuery, invite } from "@/features/teams/queries";

/** Invites a user and shows the link once, because the platform sends no email. */
export function InviteForm({ team }: { team: string }) {
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Member["role"]>("viewer");
  const client = useQueryClient();
  // A link is shown only once, so it stays visible while others are created.
  const [sentInvitations, setSentInvitations] = useState<Awaited<ReturnType<typeof invite>>[]>([]);
  const { mutate, isPending, error, reset } = useMutation({
    mutationFn: (address: string) => invite(team, address, role),
    onSuccess: (invitation, address) => {
      // The earlier link for this address no longer works.
      setSentInvitations((before) => [invitation, ...before.filter(({ email }) => email !== invitation.email)]);
      setEmail((now) => (now === address ? "" : now));
      void client.invalidateQueries({ queryKey: invitationsQuery(team).queryKey });
    },
  });

  const otherError = withoutProblemsAt(error, ["email"]);

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate(email);
  }

  return (
    <div className="flex flex-col gap-3">
      <form onSubmit={submit} className="flex max-w-4xl flex-wrap items-start gap-2">
        <Field label="Email address to invite" hidesLabel className="min-w-48 flex-1" error={problemAt(error, "email")}>
          {(control) => (
            <TextInput
              {...control}
              type="email"
              placeholder="Email"
              required
              maxLength={254}
              value={email}
              onChange={(event) => {
                setEmail(event.target.value);
                reset();
              }}
            />
          )}
        </Field>
        <Select
          aria-label="Role to give"
          value={role}
          onChange={(event) => {
            setRole(event.target.value as Member["role"]);
          }}
        >
          {Object.entries(ROLE_LABELS).map(([one, words]) => (
            <option key={one} value={one}>
              {words}
            </option>
          ))}
        </Select>
        <Button type="submit" disabled={isPending}>
          Invite
        </Button>
      </form>
      {otherError !== null && <ErrorNote error={otherError} />}
      <div role="status" className="flex flex-col gap-3">
        {sentInvitations.map(({ email, expires, link, warning }) => (
          <div key={link} className="panel px-4 py-3">
            <p className="mb-1">
              Send this link to <span className="font-medium">{email}</span>. It works once, expires on <Time at={expires} />, and will not be shown again. Earlier links for this address no longer work.
            </p>
            <Copyable text={link} />
            {warning && <p className="mt-1 text-warn">{warning}</p>}
          </div>
        ))}
      </div>
    </div>
  );
}
