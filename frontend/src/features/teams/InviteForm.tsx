import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import type { Member } from "@/api/types";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";
import { Time } from "@/components/Time";
import { invitationsQuery, invite } from "@/features/teams/queries";

/** What each role may do, the least first. */
const ROLES: Record<Member["role"], string> = {
  viewer: "viewer: sees everything",
  editor: "editor: brings data in and trains",
  owner: "owner: invites people too",
};

/** Invites somebody and shows the link for them, once: the platform sends no e-mail. */
export function InviteForm({ team }: { team: string }) {
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Member["role"]>("viewer");
  const client = useQueryClient();
  // A link is never shown again, so it stays while others are made.
  const [made, setMade] = useState<Awaited<ReturnType<typeof invite>>[]>([]);
  const { mutate, isPending, error } = useMutation({
    mutationFn: (address: string) => invite(team, address, role),
    onSuccess: (invitation, address) => {
      setMade((before) => [invitation, ...before]);
      setEmail((now) => (now === address ? "" : now));
      void client.invalidateQueries({ queryKey: invitationsQuery(team).queryKey });
    },
  });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate(email);
  }

  return (
    <div className="flex flex-col gap-3">
      <form onSubmit={submit} className="flex max-w-2xl flex-wrap gap-2">
        <TextInput
          type="email"
          aria-label="E-mail of whom you invite"
          placeholder="E-mail"
          required
          maxLength={254}
          className="min-w-48 flex-1"
          value={email}
          onChange={(event) => {
            setEmail(event.target.value);
          }}
        />
        <Select
          aria-label="Role of whom you invite"
          value={role}
          onChange={(event) => {
            setRole(event.target.value as Member["role"]);
          }}
        >
          {Object.entries(ROLES).map(([one, words]) => (
            <option key={one} value={one}>
              {words}
            </option>
          ))}
        </Select>
        <Button type="submit" disabled={isPending}>
          Invite
        </Button>
      </form>
      {error !== null && <ErrorNote error={error} />}
      <div role="status" className="flex flex-col gap-3">
        {made.map(({ email, expires, link }) => (
          <div key={link} className="panel px-4 py-3">
            <p className="mb-1">
              Send this link to <span className="font-medium">{email}</span>. It works once, until <Time at={expires} />, and is never shown again.
            </p>
            <Copyable text={link} />
          </div>
        ))}
      </div>
    </div>
  );
}
