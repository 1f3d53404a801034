import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { REQUIRED_TEXT } from "@/components/invalidText";
import { TextInput } from "@/components/TextInput";
import type { SpecJson } from "@/features/runs/queries";
import { saveRecipe } from "@/features/runs/recipes/recipeQueries";

interface Props {
  team: string;
  spec: SpecJson;
  /** Names of existing recipes. */
  names: readonly string[];
  initialName: string;
  onClose: () => void;
}

/** Asks for a name and saves the configuration as a recipe. */
export function SaveRecipe({ team, spec, names, initialName, onClose }: Props) {
  const [name, setName] = useState(initialName);
  const [wasSent, setSent] = useState(false);
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: () => saveRecipe(team, name.trim(), spec),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: ["recipes", team] });
    },
  });
  const replaces = names.includes(name.trim());
  const isBlank = name.trim() === "";
  const send = () => {
    setSent(true);
    if (!isBlank) save.mutate();
  };
  const otherError = withoutProblemsAt(save.error, ["name"]);
  return (
    <Dialog
      title="Save as recipe"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" disabled={save.isPending} onClick={send}>
            {replaces ? "Replace recipe" : "Save recipe"}
          </Button>
        </>
      }
    >
      <p>Saves everything except the run's name and dataset, for the entire team.</p>
      <Field label="Recipe name" help={replaces ? "This replaces the recipe with the same name." : undefined} error={wasSent && isBlank ? REQUIRED_TEXT : problemAt(save.error, "name")}>
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
      {otherError !== null && <ErrorNote error={otherError} />}
    </Dialog>
  );
}
