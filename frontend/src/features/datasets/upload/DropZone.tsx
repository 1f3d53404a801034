import { FolderUp, Upload } from "lucide-react";
import { useId, useState } from "react";
import { chosenFiles, droppedFiles, isHiddenFile, type LocalFile } from "@/features/datasets/upload/localFiles";
import { plural } from "@/lib/format";

interface Props {
  /** What dropping files here does. */
  title: string;
  onFiles: (files: LocalFile[]) => void;
}

const LINK_CLASS =
  "inline-flex cursor-pointer items-center gap-1.5 rounded-box font-medium text-accent underline-offset-2 hover:underline has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent";

/** Accepts files and folders, dropped or chosen. Their content is inspected by the server after the upload. */
export function DropZone({ title, onFiles }: Props) {
  const [isDragOver, setDragOver] = useState(false);
  const [note, setNote] = useState<string | null>(null);
  const filesId = useId();
  const folderId = useId();

  function addFiles(found: LocalFile[]): void {
    const visible = found.filter((file) => !isHiddenFile(file));
    const files = visible.filter(({ file }) => file.size > 0);
    const empty = visible.filter(({ file }) => file.size === 0).map(({ name }) => name);
    const hidden = found.length - visible.length;
    const notes = [
      ...(visible.length === 0 ? ["It contains no files. Choose files, or a folder that contains some."] : []),
      ...(empty.length > 0 ? [emptyNote(empty)] : []),
      ...(visible.length > 0 && hidden > 0 ? [`${plural(hidden, "hidden file")} skipped.`] : []),
    ];
    setNote(notes.length === 0 ? null : notes.join(" "));
    if (files.length > 0) onFiles(files);
  }

  return (
    <div
      role="group"
      aria-label={title}
      className={`rounded-box border border-dashed px-6 py-8 text-center max-tablet:px-4 max-tablet:py-6 ${isDragOver ? "border-accent bg-raised" : "border-control bg-surface"}`}
      onDragOver={(event) => {
        event.preventDefault();
        setDragOver(true);
      }}
      onDragLeave={() => {
        setDragOver(false);
      }}
      onDrop={(event) => {
        event.preventDefault();
        setDragOver(false);
        droppedFiles(event.dataTransfer).then(addFiles, () => {
          setNote("The browser could not read the dropped items. Choose the files with the links above instead.");
        });
      }}
    >
      <p>{title}</p>
      <p className="mt-2 flex flex-wrap justify-center gap-x-6 gap-y-2 max-tablet:min-h-11 max-tablet:items-center">
        <label htmlFor={filesId} className={LINK_CLASS}>
          <Upload aria-hidden size={14} />
          Choose files
          <input
            id={filesId}
            type="file"
            multiple
            className="sr-only"
            onChange={(event) => {
              addFiles(chosenFiles(event.target.files));
              event.target.value = "";
            }}
          />
        </label>
        <label htmlFor={folderId} className={LINK_CLASS}>
          <FolderUp aria-hidden size={14} />
          Choose a folder
          <input
            id={folderId}
            ref={enableFolderSelection}
            type="file"
            className="sr-only"
            onChange={(event) => {
              addFiles(chosenFiles(event.target.files));
              event.target.value = "";
            }}
          />
        </label>
      </p>
      <p className="mt-2 text-small text-soft">
        Text, JSON Lines, CSV or Parquet, each also as .gz or .zst. Interrupted uploads resume where they stopped.
      </p>
      {note !== null && (
        <p role="status" className="mt-2 text-small text-warn">
          {note}
        </p>
      )}
    </div>
  );
}

const MAX_NAMED = 3;

function emptyNote(names: readonly string[]): string {
  const rest = names.length - MAX_NAMED;
  const namesText = names.slice(0, MAX_NAMED).join(", ") + (rest > 0 ? ` and ${plural(rest, "more file")}` : "");
  return names.length === 1 ? `${namesText} is empty and was skipped.` : `${namesText} are empty and were skipped.`;
}

/** React has no such property. */
function enableFolderSelection(input: HTMLInputElement | null): void {
  if (input !== null) input.webkitdirectory = true;
}
