import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import type { CurationDraft } from "@/features/datasets/curation/curation";

interface Props {
  value: CurationDraft["textDocuments"];
  onChange: (value: CurationDraft["textDocuments"]) => void;
}

/** How text files become documents. */
export function TextFilesField({ value, onChange }: Props) {
  return (
    <Field label="Text files" help="Whether a text file is one document or is split into documents at blank lines.">
      {(control) => (
        <Select
          {...control}
          value={value}
          onChange={(event) => {
            onChange(event.target.value === "file" ? "file" : "blank_line");
          }}
        >
          <option value="file">one document per file</option>
          <option value="blank_line">split at blank lines</option>
        </Select>
      )}
    </Field>
  );
}
