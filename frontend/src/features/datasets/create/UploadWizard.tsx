import { useState } from "react";
import type { Dataset, CurationSpec } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { PreviewStep, type NewFiles } from "@/features/datasets/create/PreviewStep";
import { DropZone } from "@/features/datasets/upload/DropZone";
import { UploadList } from "@/features/datasets/upload/UploadList";
import { useUploads, type DefaultSelection } from "@/features/datasets/upload/useUploads";
import { plural } from "@/lib/format";

interface Props {
  team: string;
  /** What dropping files here does. */
  title: string;
  /** The initial curation. */
  initial: CurationSpec;
  /** Whether the result needs a name. */
  hasName: boolean;
  /** Which files are selected initially. */
  defaultSelection: DefaultSelection;
  submitLabel: string;
  onSubmit: (input: NewFiles) => Promise<Dataset>;
  onCreated: (dataset: Dataset) => void;
}

/** Uploads files, previews their first rows, and creates a dataset or a version from them. */
export function UploadWizard({ team, title, initial, hasName, defaultSelection, submitLabel, onSubmit, onCreated }: Props) {
  const uploads = useUploads(team, defaultSelection);
  const [isPreviewing, setPreviewing] = useState(false);
  const ids = uploads.selected.flatMap(({ uploadId }) => uploadId ?? []);
  return (
    <div>
      <DropZone title={title} onFiles={(files) => void uploads.add(files)} />
      {uploads.error !== null && (
        <div className="mt-3">
          <ErrorNote error={uploads.error} />
        </div>
      )}
      {uploads.rows.length > 0 && <UploadList rows={uploads.rows} isSelected={uploads.isSelected} onSelect={uploads.select} onRemove={uploads.remove} />}
      {uploads.rows.length > 0 && !(isPreviewing && uploads.ready) && (
        <div className="mt-3 flex flex-wrap items-center gap-3">
          <Button
            variant="primary"
            disabled={!uploads.ready}
            onClick={() => {
              setPreviewing(true);
            }}
          >
            Preview files
          </Button>
          <span className="text-small text-soft">{hintText()}</span>
        </div>
      )}
      {isPreviewing && uploads.ready && (
        <PreviewStep
          team={team}
          uploads={ids}
          names={uploads.selected.map(({ name }) => name)}
          labels={new Map(uploads.selected.map(({ key, uploadId, label }) => [uploadId ?? key, label]))}
          initial={initial}
          hasName={hasName}
          submitLabel={submitLabel}
          onSubmit={onSubmit}
          onCreated={(dataset) => {
            setPreviewing(false);
            uploads.finish(ids);
            onCreated(dataset);
          }}
          onLeaveOut={(uploadId) => {
            const row = uploads.selected.find((row) => row.uploadId === uploadId);
            if (row !== undefined) uploads.select(row, false);
          }}
        />
      )}
    </div>
  );

  function hintText(): string {
    if (uploads.selected.length === 0) return "Select the files to use.";
    const missing = uploads.selected.filter(({ state }) => state !== "complete").length;
    return missing === 0 ? `${plural(ids.length, "file")} ready` : `waiting for ${plural(missing, "more file")} to upload`;
  }
}
