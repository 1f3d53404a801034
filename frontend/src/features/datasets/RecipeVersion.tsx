import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, DatasetVersion } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { TextInput } from "@/components/TextInput";
import { CountPanel } from "@/features/datasets/CountPanel";
import { createVersion } from "@/features/datasets/queries";
import { draftOf, mistakesOf, recipeOf } from "@/features/datasets/recipe";
import { RecipeFields } from "@/features/datasets/RecipeFields";

interface Props {
  team: string;
  dataset: Dataset;
  /** The version whose files are taken. */
  base: DatasetVersion;
  onMade: (dataset: Dataset) => void;
}

const NO_NAMES: ReadonlyMap<string, string> = new Map();

/** A new version of the same files by another recipe, counted before it is applied. */
export function RecipeVersion({ team, dataset, base, onMade }: Props) {
  const [draft, setDraft] = useState(() => draftOf(base.recipe));
  const mistakes = mistakesOf(draft);
  const wrong = Object.keys(mistakes).length > 0;
  const recipe = recipeOf(draft, base.recipe.mix);
  const making = useMutation({
    mutationFn: () => createVersion(team, dataset.id, { uploads: null, base: base.number, keepFiles: false, recipe }),
    onSuccess: onMade,
  });
  const hasText = base.files.some(({ format }) => format === "text");
  const hasFields = base.files.some(({ format }) => format !== "text");

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    if (!wrong) making.mutate();
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      <div className="grid max-w-3xl grid-cols-2 gap-x-6 gap-y-4 max-tablet:grid-cols-1">
        {hasFields && (
          <Field label="Field" help="The key or column that holds a document; left empty: text, else messages.">
            {(control) => (
              <TextInput
                {...control}
                autoComplete="off"
                spellCheck={false}
                placeholder="text"
                value={draft.field}
                onChange={(event) => {
                  setDraft({ ...draft, field: event.target.value });
                }}
              />
            )}
          </Field>
        )}
        {hasText && (
          <Field label="Text files" help="Whether a text file is one document, or one for each stretch between blank lines.">
            {(control) => (
              <Select
                {...control}
                value={draft.textDocuments}
                onChange={(event) => {
                  setDraft({ ...draft, textDocuments: event.target.value === "file" ? "file" : "blank_line" });
                }}
              >
                <option value="file">one document a file</option>
                <option value="blank_line">split at blank lines</option>
              </Select>
            )}
          </Field>
        )}
      </div>
      <RecipeFields
        draft={draft}
        mistakes={mistakes}
        problems={making.error instanceof ApiError ? making.error.problems : []}
        onChange={setDraft}
      />
      <CountPanel team={team} dataset={dataset.id} version={base.number} recipe={recipe} disabled={wrong} names={NO_NAMES} />
      <div>
        <Button type="submit" look="primary" disabled={making.isPending || wrong}>
          Create version
        </Button>
      </div>
      {making.error !== null && <ErrorNote error={making.error} />}
    </form>
  );
}
