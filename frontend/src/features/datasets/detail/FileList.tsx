import type { DatasetFile } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { fileKind } from "@/features/datasets/fileKind";
import { count, plural } from "@/lib/format";

/** The files of a version: the format detected from their bytes, and their document counts. */
export function FileList({ files }: { files: readonly DatasetFile[] }) {
  return (
    <div role="region" aria-label="Files of this version" tabIndex={0} className="max-h-80 overflow-y-auto">
      <ul className="divide-y">
        {files.map((file) => (
          <li key={file.name} className="flex flex-wrap gap-x-4 py-1 text-soft">
            <span className="min-w-0 break-all text-text">{file.name}</span>
            <Bytes value={file.bytes} />
            <span>{fileKind(file)}</span>
            {file.documents !== null && file.documents !== undefined && <span>{plural(file.documents, "document")}</span>}
            {(file.rejected ?? 0) > 0 && <span className="text-warn">{count(file.rejected ?? 0)} unreadable</span>}
            <span className="ml-auto font-mono text-mono" title={`SHA-256 ${file.digest}`}>
              {file.digest.slice(0, 12)}
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}
