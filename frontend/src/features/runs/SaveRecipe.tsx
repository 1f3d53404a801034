import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import type { SpecJson } from "@/features/runs/queries";
import { saveRecipe } from "@/features/runs/recipeQueries";

interface Props {
  team: string;
  spec: SpecJson;
  /** Of the recipes that there are. */
  names: readonly string[];
  first: string;
  onClose: () => void;
}

/** Asks under which name to keep what is written. */
export function SaveRecipe({ team, spec, names, first, onClose }: Props) {
  const [name, setName] = useState(first);
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: () => saveRecipe(team, name.trim(), spec),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: ["recipes", team] });
    },
  });
  const replaces = names.includes(name.trim());
  const send = () => {
    if (name.trim() !== "") save.mutate();
  };
  return (
    <Dialog
      title="Save as recipe"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Not now</Button>
          <Button look="primary" disabled={save.isPending || name.trim() === ""} onClick={send}>
            {replaces ? "Replace recipe" : "Save recipe"}
          </Button>
        </>
      }
    >
      <p>Everything but the run’s name and its dataset is kept, for the whole team.</p>
      <Field label="Name of the recipe" help={replaces ? "A recipe of this name exists and is replaced." : undefined}>
        {(control) => (
          <TextInput
            {...control}
            autoComplete="off"
            maxLength={120}
            value={name}
            onChange={(event) => {
              setName(event.target.value);
            }}
            onKeyDown={(event) => {
              if (event.key !== "Enter") return;
              event.preventDefault();
              send();
            }}
          />
        )}
      </Field>
      {save.error !== null && <ErrorNote error={save.error} />}
    </Dialog>
  );
}
