import { Upload } from "lucide-react";
import { useId, useState } from "react";

interface Props {
  /** What dropping here does. */
  title: string;
  onFiles: (files: File[]) => void;
}

const KINDS = /\.(txt|jsonl)$/i;

/** Takes `.txt` and `.jsonl` files, dropped or chosen, and says at once when others are among them. */
export function DropZone({ title, onFiles }: Props) {
  const [over, setOver] = useState(false);
  const [strange, setStrange] = useState<string[]>([]);
  const inputId = useId();

  function take(list: FileList | null): void {
    const files = Array.from(list ?? []);
    const others = files.filter(({ name }) => !KINDS.test(name)).map(({ name }) => name);
    setStrange(others);
    if (others.length === 0 && files.length > 0) onFiles(files);
  }

  return (
    <div
      role="group"
      aria-label={title}
      className={`rounded-box border border-dashed px-6 py-8 text-center ${over ? "border-accent bg-raised" : "border-control bg-surface"}`}
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
        take(event.dataTransfer.files);
      }}
    >
      <Upload aria-hidden size={18} className="mx-auto mb-2 text-soft" />
      <p>
        {title}, or{" "}
        <label
          htmlFor={inputId}
          className="cursor-pointer rounded-box font-medium text-accent underline-offset-2 hover:underline has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-accent"
        >
          choose files
          <input
            id={inputId}
            type="file"
            multiple
            accept=".txt,.jsonl"
            className="sr-only"
            onChange={(event) => {
              take(event.target.files);
              event.target.value = "";
            }}
          />
        </label>
      </p>
      <p className="mt-1 text-small text-soft">
        .jsonl with one object a line whose <code className="font-mono">text</code> is a document, or .txt, cut at line ends into documents of about 64 KiB.
      </p>
      {strange.length > 0 && (
        <p role="alert" className="mt-2 text-small text-bad">
          {strange.join(", ")}: not .txt or .jsonl. Nothing was uploaded; choose files of these two kinds.
        </p>
      )}
    </div>
  );
}
