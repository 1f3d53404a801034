import type { PreviewFile } from "@/api/types";
import { DocumentText } from "@/features/datasets/DocumentText";
import { fileKind } from "@/features/datasets/fileKind";
import { count, plural } from "@/lib/format";

interface Props {
  file: PreviewFile;
  /** Its name, and what tells it apart from others of that name. */
  label: string;
  onLeaveOut: () => void;
}

/** One file: its format, columns, first documents and unreadable rows. */
export function PreviewFile({ file, label, onLeaveOut }: Props) {
  const { columns, field, documents, rejected, problem } = file;
  return (
    <li className="px-4 py-3">
      <h3 className="flex flex-wrap items-baseline gap-x-3">
        <span className="min-w-0 font-medium break-all">{label}</span>
        {file.format !== null && <span className="text-small text-soft">{fileKind(file)}</span>}
      </h3>
      {columns.length > 0 && (
        <p className="mt-1 flex flex-wrap gap-x-4 gap-y-1 text-small text-soft">
          {columns.map((column) => (
            <span key={column.name} className={column.name === field ? "text-text" : ""}>
              {column.name === field && "documents from "}
              <span className="font-mono font-medium">{column.name}</span> ({column.type})
            </span>
          ))}
        </p>
      )}
      {problem !== null && problem !== undefined && (
        <div role="alert" className="mt-2 flex flex-wrap items-center gap-x-4 gap-y-1 rounded-box border border-bad px-3 py-2">
          <p className="min-w-0 flex-1 basis-64">{problem}</p>
          <button type="button" className="rounded-box text-accent hover:underline max-tablet:min-h-11" onClick={onLeaveOut}>
            Exclude <span className="sr-only">{label}</span>
          </button>
        </div>
      )}
      {rejected.length > 0 && (
        <ul aria-label={`Rows of ${label} that cannot be read`} className="mt-2">
          {rejected.map(({ line, reason }) => (
            <li key={line} className="text-warn">
              line {count(line)} {reason}
            </li>
          ))}
        </ul>
      )}
      {documents.length > 0 && (
        <ol aria-label={`First documents of ${label}`} className="mt-2 flex flex-col gap-2">
          {documents.map((text, index) => (
            <li key={index}>
              <DocumentText text={text} />
            </li>
          ))}
        </ol>
      )}
      {documents.length === 0 && (problem === null || problem === undefined) && (
        <p className="mt-2 text-soft">No documents in the first {plural(Math.max(1, rejected.length), "row")}.</p>
      )}
    </li>
  );
}
