/** The team's files that no dataset uses yet: uploads of this browser, and uploads that only the server knows. */
import type { Upload } from "@/api/types";
import type { UploadTask, UploadState } from "@/features/datasets/upload/uploadStore";
import { moment } from "@/lib/format";
import { idsOfSharedNames } from "@/lib/sharedNames";

export interface UploadRowData {
  key: string;
  name: string;
  /** The name, and what tells the file apart from others of that name. */
  label: string;
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
  /** When the upload began; null for one that began in this page. */
  created: string | null;
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
  const local = mine.filter(({ isStandalone }) => !isStandalone).map((task) => ({ ...task, label: task.name, local: true, by: null, created: null, expires: null }));
  const others = uploads.filter(({ id }) => !known.has(id) && !dropped.has(id)).map(rowOf);
  const oldestFirst = [...others.sort((a, b) => a.created.localeCompare(b.created)), ...local];
  return labeled(oldestFirst).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

/** Rows whose labels differ. */
function labeled(rows: readonly UploadRowData[]): UploadRowData[] {
  const shared = idsOfSharedNames(rows.map(({ key, name }) => ({ id: key, name })));
  return rows.map((row) => {
    if (!shared.has(row.key)) return row;
    const same = rows.filter(({ name }) => name === row.name);
    const when = row.created === null ? "selected in this browser" : `uploaded ${moment(row.created)}`;
    return { ...row, label: `${row.name} (${same.indexOf(row) + 1} of ${same.length}, ${when})` };
  });
}

function rowOf({ id, file_name, bytes, offset, complete, created, created_by, mine, expires }: Upload): UploadRowData & { created: string } {
  return {
    key: id,
    name: file_name,
    label: file_name,
    bytes,
    sent: offset,
    bytesPerSecond: 0,
    state: complete ? "complete" : mine ? "unfinished" : "theirs",
    isOffline: false,
    error: null,
    uploadId: id,
    local: false,
    by: mine ? null : (created_by ?? "a former member"),
    created,
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
