import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { parseLimit, typedLimit } from "@/features/teams/limits/limitFields";
import { setFileLimit, teamQuery } from "@/features/teams/queries";

const FIELD = { unit: 2 ** 30, most: 2 ** 30 };

/** Changes how many GiB of files the team may store; for site admins. */
export function FileLimitForm({ team }: { team: string }) {
  const { data } = useSuspenseQuery(teamQuery(team));
  const [typed, setTyped] = useState(typedLimit(data.storage.limit_bytes, FIELD));
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (bytes: number) => setFileLimit(team, bytes),
    onSuccess: () => client.invalidateQueries({ queryKey: ["team", team] }),
  });
  const limit = parseLimit(typed, FIELD) ?? undefined;
  return (
    <form
      className="panel mt-3 flex flex-col gap-2 p-4"
      onSubmit={(event) => {
        event.preventDefault();
        if (limit !== undefined) change.mutate(limit);
      }}
    >
      <div className="flex flex-wrap items-end gap-3">
        <Field label="Limit of files, GiB" error={limit === undefined ? "Write a number of GiB." : undefined}>
          {(control) => (
            <TextInput
              {...control}
              inputMode="decimal"
              autoComplete="off"
              className="w-32"
              value={typed}
              onChange={(event) => {
                setTyped(event.target.value);
              }}
            />
          )}
        </Field>
        <Button type="submit" disabled={change.isPending || limit === undefined || limit === data.storage.limit_bytes}>
          Save
        </Button>
      </div>
      {change.error !== null && <ErrorNote error={change.error} />}
    </form>
  );
}
