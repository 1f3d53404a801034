import { useMutation, useQuery } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, CurationSpec } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Collapsible } from "@/components/Collapsible";
import { Skeleton } from "@/components/Skeleton";
import { needDifferentFields } from "@/features/datasets/create/commonFields";
import { defaultName } from "@/features/datasets/create/defaultName";
import { DatasetNameField } from "@/features/datasets/create/DatasetNameField";
import { PreviewFile } from "@/features/datasets/create/PreviewFile";
import { previewQuery } from "@/features/datasets/queries";
import { ReadOptions } from "@/features/datasets/create/ReadOptions";
import { draftOf, describeFilters, mistakesOf, readOf, curationOf } from "@/features/datasets/curation/curation";
import { CurationFields } from "@/features/datasets/curation/CurationFields";
import { plural } from "@/lib/format";

export interface NewFiles {
  name: string;
  uploads: string[];
  curation: CurationSpec;
}

interface Props {
  team: string;
  /** Ids of complete uploads, in the order of the files. */
  uploads: readonly string[];
  names: readonly string[];
  /** The files' names with what tells them apart, by upload. */
  labels: ReadonlyMap<string, string>;
  initial: CurationSpec;
  hasName: boolean;
  submitLabel: string;
  onSubmit: (input: NewFiles) => Promise<Dataset>;
  onCreated: (dataset: Dataset) => void;
  onLeaveOut: (uploadId: string) => void;
}

/** The API previews at most this many files per request. */
const MAX_PREVIEWED = 20;
/** Files named in a sentence. */
const MAX_NAMED = 3;

/** Previews the files' first rows and sets how they become documents. */
export function PreviewStep({ team, uploads, names, labels, initial, hasName, submitLabel, onSubmit, onCreated, onLeaveOut }: Props) {
  const [draft, setDraft] = useState(() => draftOf(initial));
  const [typed, setTyped] = useState<string | null>(null);
  const name = typed ?? defaultName(names);
  const { data: preview, error, isPlaceholderData } = useQuery(previewQuery(team, uploads.slice(0, MAX_PREVIEWED), readOf(draft), initial));
  const mistakes = mistakesOf(draft);
  const creation = useMutation({
    mutationFn: () => onSubmit({ name, uploads: [...uploads], curation: curationOf(effectiveDraft()) }),
    onSuccess: onCreated,
  });
  const unreadable = preview?.files.filter(({ problem }) => problem !== null && problem !== undefined) ?? [];
  const hasMistakes = Object.keys(mistakes).length > 0;

  /** Includes the previewed field, so that the rows that are read are the rows that were shown. */
  function effectiveDraft() {
    return { ...draft, field: draft.field || (preview?.curation.read.field ?? "") };
  }

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    if (!hasMistakes && unreadable.length === 0) creation.mutate();
  }

  return (
    <section aria-label="Preview" className="panel mt-3">
      <div className="flex flex-wrap items-baseline gap-x-3 border-b px-4 py-2">
        <h2 className="font-semibold">Preview</h2>
        <p className="text-small text-soft">The first documents of each file.</p>
      </div>
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
            {isPlaceholderData && <p className="px-4 pt-2 text-small text-soft">Showing the previous preview while the files are read again.</p>}
            <ReadOptions preview={preview} draft={draft} onChange={setDraft} />
            {needDifferentFields(preview.files) && (
              <p role="status" className="mx-4 mb-3 rounded-box border border-warn px-3 py-2">
                These files have no field in common, but a dataset is read from one field. Create one dataset per kind, excluding the
                other files for now, then combine them with “Mix datasets” on the datasets page.
              </p>
            )}
            <div role="region" aria-label="Files and their first documents" tabIndex={0} className="max-h-[36rem] overflow-y-auto border-t">
              <ul className="divide-y">
                {preview.files.map((file) => (
                  <PreviewFile
                    key={file.upload}
                    file={file}
                    label={labels.get(file.upload) ?? file.name}
                    onLeaveOut={() => {
                      onLeaveOut(file.upload);
                    }}
                  />
                ))}
              </ul>
            </div>
            {uploads.length > MAX_PREVIEWED && (
              <p className="border-t px-4 py-2 text-soft">
                Showing the first {MAX_PREVIEWED} of {plural(uploads.length, "file")}; the others are checked when the dataset is read.
              </p>
            )}
          </div>
        )}
        <div className="border-t py-1">
          <Collapsible title="Filters" summary={describeFilters(curationOf(draft)).join(", ") || "all documents"}>
            <CurationFields
              draft={draft}
              mistakes={mistakes}
              problems={creation.error instanceof ApiError ? creation.error.problems : []}
              onChange={setDraft}
            />
          </Collapsible>
        </div>
        <div className="flex flex-wrap items-end gap-4 border-t px-4 py-3">
          {hasName && (
            <div className="w-80 max-tablet:w-full">
              <DatasetNameField team={team} value={name} onChange={setTyped} />
            </div>
          )}
          <Button type="submit" variant="primary" disabled={creation.isPending || preview === undefined || unreadable.length > 0}>
            {submitLabel}
          </Button>
          <p className="text-small text-soft">{hint()}</p>
        </div>
        {creation.error !== null && (
          <div className="px-4 pb-3">
            <ErrorNote error={creation.error} />
          </div>
        )}
      </form>
    </section>
  );

  function hint(): string {
    if (unreadable.length > 0) {
      const names = unreadable.slice(0, MAX_NAMED).map((file) => file.name);
      const more = unreadable.length - names.length;
      return `${names.join(", ")}${more > 0 ? ` and ${plural(more, "more file")}` : ""} cannot be read. Exclude ${unreadable.length === 1 ? "it" : "them"}, or change the options.`;
    }
    return hasMistakes ? "A value under “Filters” is not a number." : plural(uploads.length, "file");
  }
}
