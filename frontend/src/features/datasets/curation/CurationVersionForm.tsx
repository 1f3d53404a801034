import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, DatasetVersion } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { CountPanel } from "@/features/datasets/curation/CountPanel";
import { createVersion } from "@/features/datasets/queries";
import { draftOf, mistakesOf, curationOf } from "@/features/datasets/curation/curation";
import { CurationFields } from "@/features/datasets/curation/CurationFields";
import { TextFilesField } from "@/features/datasets/curation/TextFilesField";
import { useIdempotencyKey } from "@/lib/hooks/useIdempotencyKey";

interface Props {
  team: string;
  dataset: Dataset;
  /** The version whose files are reused. */
  base: DatasetVersion;
  onCreated: (dataset: Dataset) => void;
}

const NO_NAMES: ReadonlyMap<string, string> = new Map();

/** A new version with the same files and different curation, counted before it is applied. */
export function CurationVersionForm({ team, dataset, base, onCreated }: Props) {
  const [draft, setDraft] = useState(() => draftOf(base.curation));
  const keyOf = useIdempotencyKey();
  const mistakes = mistakesOf(draft);
  const hasMistakes = Object.keys(mistakes).length > 0;
  const curation = curationOf(draft, base.curation.mix);
  const creation = useMutation({
    mutationFn: () => {
      const version = { uploads: null, base: base.number, keepFiles: false, curation };
      return createVersion(team, dataset.id, version, keyOf(version));
    },
    onSuccess: onCreated,
  });
  const hasText = base.files.some(({ format }) => format === "text");
  const hasFields = base.files.some(({ format }) => format !== "text");

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    if (!hasMistakes) creation.mutate();
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      <div className="grid max-w-3xl grid-cols-2 gap-x-6 gap-y-4 max-tablet:grid-cols-1">
        {hasFields && (
          <Field label="Field" help="The key or column that holds a document; if empty: text, else messages.">
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
          <TextFilesField
            value={draft.textDocuments}
            onChange={(textDocuments) => {
              setDraft({ ...draft, textDocuments });
            }}
          />
        )}
      </div>
      <CurationFields
        draft={draft}
        mistakes={mistakes}
        problems={creation.error instanceof ApiError ? creation.error.problems : []}
        onChange={setDraft}
      />
      <CountPanel team={team} dataset={dataset.id} version={base.number} curation={curation} disabled={hasMistakes} names={NO_NAMES} />
      <div>
        <Button type="submit" variant="primary" disabled={creation.isPending}>
          Create version
        </Button>
      </div>
      {creation.error !== null && <ErrorNote error={creation.error} />}
    </form>
  );
}
