import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { createTeam } from "@/features/teams/queries";

/** Creates a team; for site admins. */
export function NewTeamForm({ onCreated }: { onCreated: (slug: string) => Promise<void> }) {
  const [typed, setTyped] = useState({ name: "", slug: "" });
  const create = useMutation({ mutationFn: () => createTeam(typed.slug, typed.name), onSuccess: (team) => onCreated(team.slug) });
  const field = (name: "name" | "slug", label: string, help: string) => (
    <Field label={label} help={help}>
      {(control) => (
        <TextInput
          {...control}
          required
          maxLength={80}
          autoComplete="off"
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
      className="flex max-w-96 flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        create.mutate();
      }}
    >
      {field("name", "Name", "As people read it. Owners can change it.")}
      {field("slug", "Short name", "Lowercase letters, digits and hyphens, for addresses and scripts. It never changes.")}
      <Button type="submit" className="self-start" disabled={create.isPending || typed.name.trim() === "" || typed.slug === ""}>
        Create team
      </Button>
      {create.error !== null && <ErrorNote error={create.error} />}
    </form>
  );
}
