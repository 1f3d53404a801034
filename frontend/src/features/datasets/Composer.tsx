import { useMutation, useQuery } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, Recipe } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { Fold } from "@/components/Fold";
import { Skeleton } from "@/components/Skeleton";
import { TextInput } from "@/components/TextInput";
import { needDifferentFields } from "@/features/datasets/commonFields";
import type { FilesWish } from "@/features/datasets/Intake";
import { nameFor } from "@/features/datasets/nameFor";
import { PreviewFileCard } from "@/features/datasets/PreviewFileCard";
import { previewQuery } from "@/features/datasets/queries";
import { ReadChoice } from "@/features/datasets/ReadChoice";
import { draftOf, keptPartsOf, mistakesOf, readOf, recipeOf } from "@/features/datasets/recipe";
import { RecipeFields } from "@/features/datasets/RecipeFields";
import { plural } from "@/lib/format";

interface Props {
  team: string;
  /** Ids of complete uploads, in the order of the files. */
  uploads: readonly string[];
  names: readonly string[];
  start: Recipe;
  named: boolean;
  verb: string;
  make: (wish: FilesWish) => Promise<Dataset>;
  onMade: (dataset: Dataset) => void;
  onLeaveOut: (uploadId: string) => void;
}

/** As many files as the API opens for one look. */
const LOOKED_AT = 20;

/** What the files hold, by their first rows, and how they become documents. */
export function Composer({ team, uploads, names, start, named, verb, make, onMade, onLeaveOut }: Props) {
  const [draft, setDraft] = useState(() => draftOf(start));
  const [typed, setTyped] = useState<string | null>(null);
  const name = typed ?? nameFor(names);
  const { data: preview, error, isPlaceholderData } = useQuery(previewQuery(team, uploads.slice(0, LOOKED_AT), readOf(draft), start));
  const mistakes = mistakesOf(draft);
  const making = useMutation({
    mutationFn: () => make({ name, uploads: [...uploads], recipe: recipeOf(chosen()) }),
    onSuccess: onMade,
  });
  const unreadable = preview?.files.filter(({ problem }) => problem !== null && problem !== undefined) ?? [];
  const wrong = Object.keys(mistakes).length > 0;

  /** With the field that was looked at, so that the first rows seen are the rows read. */
  function chosen() {
    return { ...draft, field: draft.field || (preview?.recipe.read.field ?? "") };
  }

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    if (!wrong && unreadable.length === 0) making.mutate();
  }

  return (
    <section aria-label="First rows" className="panel mt-3">
      <h2 className="border-b px-4 py-2 font-semibold">First rows</h2>
      <form onSubmit={submit}>
        {error !== null && (
          <div className="px-4 pt-3">
            <ErrorNote error={error} />
          </div>
        )}
        {preview === undefined ? (
          error === null && (
            <div className="p-4">
              <Skeleton rows={4} />
            </div>
          )
        ) : (
          <div aria-busy={isPlaceholderData}>
            {isPlaceholderData && <p className="px-4 pt-2 text-small text-soft">As read before; the files are being read anew.</p>}
            <ReadChoice preview={preview} draft={draft} onChange={setDraft} />
            {needDifferentFields(preview.files) && (
              <p role="status" className="mx-4 mb-3 rounded-box border border-warn px-3 py-2">
                These files have no field in common, and a dataset is read by one field. Make one dataset of each kind, leaving out the
                other files for now; then mix them with “Mix datasets” on the datasets page.
              </p>
            )}
            <div role="region" aria-label="Files and their first documents" tabIndex={0} className="max-h-[36rem] overflow-y-auto border-t">
              <ul className="divide-y">
                {preview.files.map((file) => (
                  <PreviewFileCard
                    key={file.upload}
                    file={file}
                    onLeaveOut={() => {
                      onLeaveOut(file.upload);
                    }}
                  />
                ))}
              </ul>
            </div>
            {uploads.length > LOOKED_AT && (
              <p className="border-t px-4 py-2 text-soft">
                These are the first {LOOKED_AT} of {plural(uploads.length, "file")}; the others are looked at when they are read.
              </p>
            )}
          </div>
        )}
        <div className="border-t py-1">
          <Fold title="What is kept" summary={keptPartsOf(recipeOf(draft)).join(", ") || "all documents"}>
            <RecipeFields
              draft={draft}
              mistakes={mistakes}
              problems={making.error instanceof ApiError ? making.error.problems : []}
              onChange={setDraft}
            />
          </Fold>
        </div>
        <div className="flex flex-wrap items-end gap-4 border-t px-4 py-3">
          {named && (
            <div className="w-80 max-tablet:w-full">
              <Field label="Name">
                {(control) => (
                  <TextInput
                    {...control}
                    required
                    maxLength={80}
                    autoComplete="off"
                    value={name}
                    onChange={(event) => {
                      setTyped(event.target.value);
                    }}
                  />
                )}
              </Field>
            </div>
          )}
          <Button type="submit" look="primary" disabled={making.isPending || preview === undefined || unreadable.length > 0 || wrong}>
            {verb}
          </Button>
          <p className="text-small text-soft">{hint()}</p>
        </div>
        {making.error !== null && (
          <div className="px-4 pb-3">
            <ErrorNote error={making.error} />
          </div>
        )}
      </form>
    </section>
  );

  function hint(): string {
    if (unreadable.length > 0) {
      return `${plural(unreadable.length, "file")} cannot be read, as said above. Leave ${unreadable.length === 1 ? "it" : "them"} out, or choose otherwise.`;
    }
    return wrong ? "A number under “What is kept” needs a change." : plural(uploads.length, "file");
  }
}
