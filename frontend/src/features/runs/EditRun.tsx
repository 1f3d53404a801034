import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError } from "@/api/errors";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { tagsOf } from "@/features/runs/bulk";
import { editRun } from "@/features/runs/verbs";

interface Props {
  team: string;
  run: Run;
  onSaved: (run: Run) => void;
  onClose: () => void;
}

const LONGEST_NOTES = 20_000;

/** What people call a run and what they remember of it. */
export function EditRun({ team, run, onSaved, onClose }: Props) {
  const [name, setName] = useState(run.name);
  const [tags, setTags] = useState(run.tags.join(" "));
  const [notes, setNotes] = useState(run.notes);
  const save = useMutation({
    mutationFn: () => editRun(team, run.id, { name: name.trim(), tags: tagsOf(tags), notes }),
    onSuccess: (answer) => {
      onSaved(answer);
      onClose();
    },
  });
  const problem = (field: string) =>
    save.error instanceof ApiError ? save.error.problems.find(({ field: at }) => at === field || at.startsWith(`${field}.`))?.message : undefined;
  const told = ["name", "tags", "notes"].some((field) => problem(field) !== undefined);
  return (
    <Dialog
      title={`Name, tags and notes of ${run.name}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Leave as they are</Button>
          <Button look="primary" type="submit" form="edit-run" disabled={save.isPending}>
            Save
          </Button>
        </>
      }
    >
      <form
        id="edit-run"
        className="flex flex-col gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <Field label="Name" error={problem("name")}>
          {(control) => (
            <TextInput
              {...control}
              required
              maxLength={80}
              value={name}
              onChange={(event) => {
                setName(event.target.value);
              }}
            />
          )}
        </Field>
        <Field label="Tags" error={problem("tags")} help="Small letters, digits and . _ -, with a space between them.">
          {(control) => (
            <TextInput
              {...control}
              autoComplete="off"
              spellCheck={false}
              value={tags}
              onChange={(event) => {
                setTags(event.target.value);
              }}
            />
          )}
        </Field>
        <Field label="Notes" error={problem("notes")}>
          {(control) => (
            <textarea
              {...control}
              rows={6}
              maxLength={LONGEST_NOTES}
              className="control w-full min-w-0 px-2 py-1"
              value={notes}
              onChange={(event) => {
                setNotes(event.target.value);
              }}
            />
          )}
        </Field>
        {save.error !== null && !told && <ErrorNote error={save.error} />}
      </form>
    </Dialog>
  );
}
