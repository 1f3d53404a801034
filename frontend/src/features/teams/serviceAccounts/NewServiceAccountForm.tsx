import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { NameField } from "@/components/NameField";
import { Select } from "@/components/Select";
import { ROLE_LABELS } from "@/features/teams/members/roles";
import { createServiceAccount } from "@/features/teams/serviceAccounts/queries";

/** Creates a service account. Its first key is created in the list. */
export function NewServiceAccountForm({ team }: { team: string }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<"viewer" | "editor">("editor");
  const client = useQueryClient();
  const create = useMutation({
    mutationFn: () => createServiceAccount(team, { name, role }),
    onSuccess: async () => {
      setName("");
      await client.invalidateQueries({ queryKey: ["team", team] });
    },
  });

  const otherError = withoutProblemsAt(create.error, ["name"]);

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    create.mutate();
  }

  return (
    <div className="flex flex-col gap-3">
      <form onSubmit={submit} className="flex flex-wrap items-start gap-2">
        <NameField
          label="Name of the new service account"
          hidesLabel
          placeholder="Name, such as nightly"
          className="min-w-40 flex-1"
          error={problemAt(create.error, "name")}
          value={name}
          onChange={(typed) => {
            setName(typed);
            create.reset();
          }}
        />
        <Select
          aria-label="Role of the new service account"
          value={role}
          onChange={(event) => {
            setRole(event.target.value as "viewer" | "editor");
          }}
        >
          <option value="editor">{ROLE_LABELS.editor}</option>
          <option value="viewer">{ROLE_LABELS.viewer}</option>
        </Select>
        <Button type="submit" disabled={create.isPending}>
          Create service account
        </Button>
      </form>
      {otherError !== null && <ErrorNote error={otherError} />}
    </div>
  );
}
