import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { RunView } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { NameField } from "@/components/NameField";
import { saveView, viewsQuery } from "@/features/runs/views/views";

interface Props {
  team: string;
  view: RunView;
  /** Names of the person's other views. */
  names: readonly string[];
  onClose: () => void;
}

/** Asks for a name and saves the view. */
export function SaveView({ team, view, names, onClose }: Props) {
  const [name, setName] = useState("");
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: () => saveView(team, name.trim(), view),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: viewsQuery(team).queryKey });
      onClose();
    },
  });
  const replaces = names.includes(name.trim());
  return (
    <Dialog
      title="Save this view"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" form="save-view" variant="primary" disabled={save.isPending}>
            {replaces ? "Replace view" : "Save view"}
          </Button>
        </>
      }
    >
      <form
        id="save-view"
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <p>Saves the filter, the order, the columns and the grouping. Only you see your views.</p>
        <NameField label="Name of the view" value={name} onChange={setName} />
        {replaces && <p className="text-small text-soft">This replaces your view with the same name.</p>}
      </form>
      {save.error !== null && <ErrorNote error={save.error} />}
    </Dialog>
  );
}
