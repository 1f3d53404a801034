import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { NOT_BLANK } from "@/components/invalidText";
import { TextInput } from "@/components/TextInput";
import { createTeam } from "@/features/teams/queries";

/** Creates a team; for site admins. */
export function NewTeamForm({ onCreated }: { onCreated: (slug: string) => Promise<void> }) {
  const [typed, setTyped] = useState({ name: "", slug: "" });
  const create = useMutation({ mutationFn: () => createTeam(typed.slug, typed.name), onSuccess: (team) => onCreated(team.slug) });
  const field = (name: "name" | "slug", label: string, help: string) => (
    <Field label={label} help={help} error={problemAt(create.error, name)}>
      {(control) => (
        <TextInput
          {...control}
          required
          pattern={NOT_BLANK}
          maxLength={80}
          autoComplete="off"
          value={typed[name]}
          onChange={(event) => {
            setTyped({ ...typed, [name]: event.target.value });
            create.reset();
          }}
        />
      )}
    </Field>
  );
  const otherError = withoutProblemsAt(create.error, ["name", "slug"]);
  return (
    <form
      className="flex max-w-96 flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        create.mutate();
      }}
    >
      {field("name", "Name", "The name that people see. Owners can change it.")}
      {field("slug", "Short name", "Lowercase letters, digits and hyphens, for addresses and scripts. It never changes.")}
      <Button type="submit" variant="primary" className="self-start" disabled={create.isPending}>
        Create team
      </Button>
      {otherError !== null && <ErrorNote error={otherError} />}
    </form>
  );
}
