import type { Preview } from "@/api/types";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import type { CurationDraft } from "@/features/datasets/curation/curation";
import { TextFilesField } from "@/features/datasets/curation/TextFilesField";

interface Props {
  preview: Preview;
  draft: CurationDraft;
  onChange: (draft: CurationDraft) => void;
}

/** Which field or column holds a document, and how text files are split. Shown only for files that need it. */
export function ReadOptions({ preview, draft, onChange }: Props) {
  const columns = [...new Set(preview.files.flatMap((file) => file.columns.filter(({ usable }) => usable).map(({ name }) => name)))];
  const hasText = preview.files.some(({ format }) => format === "text");
  const hasColumns = preview.files.some((file) => file.columns.length > 0);
  const field = draft.field || (preview.curation.read.field ?? "");
  if (!hasText && !hasColumns) return null;
  return (
    <div className="grid max-w-3xl grid-cols-2 gap-x-6 gap-y-3 px-4 py-3 max-tablet:grid-cols-1">
      {hasColumns && (
        <Field label="Field" help="The key or column that holds a document, as text or as chat messages.">
          {(control) => (
            <Select
              {...control}
              value={field}
              onChange={(event) => {
                onChange({ ...draft, field: event.target.value });
              }}
            >
              <option value="">{columns.length === 0 ? "no usable field" : "choose a field"}</option>
              {[...new Set([...columns, ...(field === "" ? [] : [field])])].map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </Select>
          )}
        </Field>
      )}
      {hasText && (
        <TextFilesField
          value={draft.textDocuments}
          onChange={(textDocuments) => {
            onChange({ ...draft, textDocuments });
          }}
        />
      )}
    </div>
  );
}
