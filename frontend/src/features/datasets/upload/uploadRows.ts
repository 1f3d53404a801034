/** The team's files that no dataset uses yet: uploads of this browser, and uploads that only the server knows. */
import type { Upload } from "@/api/types";
import type { UploadTask, UploadState } from "@/features/datasets/upload/uploadStore";

export interface UploadRowData {
  key: string;
  name: string;
  bytes: number;
  sent: number;
  bytesPerSecond: number;
  /**
   * `unfinished`: the server has a part and this browser does not have the file; `theirs`: a teammate is uploading
   * it.
   */
  state: UploadState | "unfinished" | "theirs";
  /** The server does not respond; the upload resumes automatically. */
  isOffline: boolean;
  error: Error | null;
  uploadId: string | null;
  /** Whether this browser has the file. */
  local: boolean;
  /** The teammate who uploaded it; null: you. */
  by: string | null;
  expires: string | null;
}

export function uploadRows(
  team: string,
  tasks: readonly UploadTask[],
  uploads: readonly Upload[],
  dropped: ReadonlySet<string>,
): UploadRowData[] {
  const mine = tasks.filter((task) => task.team === team);
  const known = new Set(mine.map(({ uploadId }) => uploadId));
  const local = mine.filter(({ isStandalone }) => !isStandalone).map((task) => ({ ...task, local: true, by: null, expires: null }));
  const others = uploads.filter(({ id }) => !known.has(id) && !dropped.has(id)).map(rowOf);
  return [...local, ...others].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

function rowOf({ id, file_name, bytes, offset, complete, created_by, mine, expires }: Upload): UploadRowData {
  return {
    key: id,
    name: file_name,
    bytes,
    sent: offset,
    bytesPerSecond: 0,
    state: complete ? "complete" : mine ? "unfinished" : "theirs",
    isOffline: false,
    error: null,
    uploadId: id,
    local: false,
    by: mine ? null : (created_by ?? "a former member"),
    expires,
  };
}

/**
 * Whether a dataset can be created from it, now or after the upload. Only the teammate who is uploading a file can
 * use it.
 */
export function isUsable({ state }: UploadRowData): boolean {
  return state !== "theirs";
}

export interface UploadTotals {
  files: number;
  complete: number;
  bytes: number;
  sent: number;
  bytesPerSecond: number;
}

export function uploadTotals(rows: readonly UploadRowData[]): UploadTotals {
  const sum = (pick: (row: UploadRowData) => number) => rows.reduce((total, row) => total + pick(row), 0);
  return {
    files: rows.length,
    complete: rows.filter(({ state }) => state === "complete").length,
    bytes: sum(({ bytes }) => bytes),
    sent: sum(({ sent }) => sent),
    bytesPerSecond: sum(({ bytesPerSecond }) => bytesPerSecond),
  };
}
