import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError } from "@/api/errors";
import type { Run, RunEdit } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { tagsOf } from "@/features/runs/bulk";
import { runQuery } from "@/features/runs/queries";
import { editRun, retagged } from "@/features/runs/verbs";

interface Props {
  team: string;
  run: Run;
  onSaved: (run: Run) => void;
  onClose: () => void;
}

const LONGEST_NOTES = 20_000;

/** What people call a run and what they remember of it. Only what is changed here is sent: others change it meanwhile. */
export function EditRun({ team, run, onSaved, onClose }: Props) {
  const [opened] = useState(run);
  const client = useQueryClient();
  const [name, setName] = useState(run.name);
  const [tags, setTags] = useState(run.tags.join(" "));
  const [notes, setNotes] = useState(run.notes);
  const save = useMutation({
    mutationFn: async () => {
      const edit = await changes();
      return Object.keys(edit).length === 0 ? null : editRun(team, run.id, edit);
    },
    onSuccess: (answer) => {
      if (answer !== null) onSaved(answer);
      onClose();
    },
  });

  async function changes(): Promise<RunEdit> {
    const edit: RunEdit = {};
    if (name.trim() !== opened.name) edit.name = name.trim();
    if (notes !== opened.notes) edit.notes = notes;
    // Tags are sent as a whole, so those that others gave and took meanwhile have to be known.
    if (tags !== opened.tags.join(" ")) {
      const { tags: now } = await client.query(runQuery(team, run.id));
      edit.tags = retagged(now, opened.tags, tagsOf(tags));
    }
    return edit;
  }

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
