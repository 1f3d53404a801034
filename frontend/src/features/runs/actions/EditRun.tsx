import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import type { Run, RunEdit } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { NameField } from "@/components/NameField";
import { TextInput } from "@/components/TextInput";
import { parseTags } from "@/features/runs/actions/bulkRequests";
import { runQuery } from "@/features/runs/queries";
import { editRun, mergeTags } from "@/features/runs/actions/runRequests";

interface Props {
  team: string;
  run: Run;
  onSaved: (run: Run) => void;
  onClose: () => void;
}

const MAX_NOTES_LENGTH = 20_000;

/** A run's name, tags and notes. Sends only what changed here, because others may edit it at the same time. */
export function EditRun({ team, run, onSaved, onClose }: Props) {
  const [original] = useState(run);
  const client = useQueryClient();
  const [name, setName] = useState(run.name);
  const [tags, setTags] = useState(run.tags.join(" "));
  const [notes, setNotes] = useState(run.notes);
  const save = useMutation({
    mutationFn: async () => {
      const edit = await changes();
      return Object.keys(edit).length === 0 ? null : editRun(team, run.id, edit);
    },
    onSuccess: (response) => {
      if (response !== null) onSaved(response);
      onClose();
    },
  });

  async function changes(): Promise<RunEdit> {
    const edit: RunEdit = {};
    if (name.trim() !== original.name) edit.name = name.trim();
    if (notes !== original.notes) edit.notes = notes;
    // Tags are sent as a full list, so tags that others changed in the meantime must be merged.
    if (tags !== original.tags.join(" ")) {
      const { tags: now } = await client.query(runQuery(team, run.id));
      edit.tags = mergeTags(now, original.tags, parseTags(tags));
    }
    return edit;
  }

  const fieldError = (field: string) => problemAt(save.error, field);
  const otherError = withoutProblemsAt(save.error, ["name", "tags", "notes"]);
  return (
    <Dialog
      title={`Edit ${run.name}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" form="edit-run" disabled={save.isPending}>
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
        <NameField error={fieldError("name")} value={name} onChange={setName} />
        <Field label="Tags" error={fieldError("tags")} help="Lowercase letters, digits and . _ -, separated by spaces.">
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
        <Field label="Notes" error={fieldError("notes")}>
          {(control) => (
            <textarea
              {...control}
              rows={6}
              maxLength={MAX_NOTES_LENGTH}
              className="control w-full min-w-0 px-2 py-1"
              value={notes}
              onChange={(event) => {
                setNotes(event.target.value);
              }}
            />
          )}
        </Field>
        {otherError !== null && <ErrorNote error={otherError} />}
      </form>
    </Dialog>
  );
}
