import { FolderUp, Upload } from "lucide-react";
import { useId, useState } from "react";
import { chosenFiles, droppedFiles, isLitter, type NamedFile } from "@/features/datasets/namedFiles";
import { plural } from "@/lib/format";

interface Props {
  /** What dropping here does. */
  title: string;
  onFiles: (files: NamedFile[]) => void;
}

const LINK =
  "inline-flex cursor-pointer items-center gap-1.5 rounded-box font-medium text-accent underline-offset-2 hover:underline has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent";

/** Takes files and folders, dropped or chosen. What they hold is looked at once they are on the server, by their bytes. */
export function DropZone({ title, onFiles }: Props) {
  const [over, setOver] = useState(false);
  const [note, setNote] = useState<string | null>(null);
  const filesId = useId();
  const folderId = useId();

  function take(found: NamedFile[]): void {
    const shown = found.filter((one) => !isLitter(one));
    const files = shown.filter(({ file }) => file.size > 0);
    const empty = shown.filter(({ file }) => file.size === 0).map(({ name }) => name);
    const hidden = found.length - shown.length;
    const left = [
      ...(shown.length === 0 ? ["There is no file in it. Choose files, or a folder that has some."] : []),
      ...(empty.length > 0 ? [emptyNote(empty)] : []),
      ...(shown.length > 0 && hidden > 0 ? [`${plural(hidden, "hidden file")} left out.`] : []),
    ];
    setNote(left.length === 0 ? null : left.join(" "));
    if (files.length > 0) onFiles(files);
  }

  return (
    <div
      role="group"
      aria-label={title}
      className={`rounded-box border border-dashed px-6 py-8 text-center max-tablet:px-4 max-tablet:py-6 ${over ? "border-accent bg-raised" : "border-control bg-surface"}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => {
        setOver(false);
      }}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        droppedFiles(event.dataTransfer).then(take, () => {
          setNote("The browser could not open what was dropped. Choose the files with the links here instead.");
        });
      }}
    >
      <p>{title}</p>
      <p className="mt-2 flex flex-wrap justify-center gap-x-6 gap-y-2 max-tablet:min-h-11 max-tablet:items-center">
        <label htmlFor={filesId} className={LINK}>
          <Upload aria-hidden size={14} />
          choose files
          <input
            id={filesId}
            type="file"
            multiple
            className="sr-only"
            onChange={(event) => {
              take(chosenFiles(event.target.files));
              event.target.value = "";
            }}
          />
        </label>
        <label htmlFor={folderId} className={LINK}>
          <FolderUp aria-hidden size={14} />
          choose a folder
          <input
            id={folderId}
            ref={askForFolder}
            type="file"
            className="sr-only"
            onChange={(event) => {
              take(chosenFiles(event.target.files));
              event.target.value = "";
            }}
          />
        </label>
      </p>
      <p className="mt-2 text-small text-soft">
        Text, JSON Lines, CSV or Parquet, each also as .gz or .zst. An interrupted upload goes on where it stopped.
      </p>
      {note !== null && (
        <p role="status" className="mt-2 text-small text-warn">
          {note}
        </p>
      )}
    </div>
  );
}

const NAMED = 3;

function emptyNote(names: readonly string[]): string {
  const rest = names.length - NAMED;
  const said = names.slice(0, NAMED).join(", ") + (rest > 0 ? ` and ${plural(rest, "more file")}` : "");
  return names.length === 1 ? `${said} is empty: it is left out.` : `${said} are empty: they are left out.`;
}

/** React knows no such property. */
function askForFolder(input: HTMLInputElement | null): void {
  if (input !== null) input.webkitdirectory = true;
}
