/** The files of a team that no dataset uses yet: those that this browser sends, and those that only the server knows. */
import type { Upload } from "@/api/types";
import type { Sending, SendState } from "@/features/datasets/uploads";

export interface TrayRow {
  key: string;
  name: string;
  bytes: number;
  sent: number;
  bytesPerSecond: number;
  /** `unfinished`: the server has a part, and this browser does not hold the file; `theirs`: a teammate is sending it. */
  state: SendState | "unfinished" | "theirs";
  /** Nobody answers at present; it goes on by itself. */
  cut: boolean;
  error: Error | null;
  uploadId: string | null;
  /** Whether this browser holds the file. */
  local: boolean;
  /** The teammate who sent it; null: you. */
  by: string | null;
  expires: string | null;
}

export function trayRows(
  team: string,
  sendings: readonly Sending[],
  uploads: readonly Upload[],
  dropped: ReadonlySet<string>,
): TrayRow[] {
  const mine = sendings.filter((one) => one.team === team);
  const known = new Set(mine.map(({ uploadId }) => uploadId));
  const local = mine.filter(({ aside }) => !aside).map((one) => ({ ...one, local: true, by: null, expires: null }));
  const others = uploads.filter(({ id }) => !known.has(id) && !dropped.has(id)).map(rowOf);
  return [...local, ...others].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

function rowOf({ id, file_name, bytes, offset, complete, created_by, mine, expires }: Upload): TrayRow {
  return {
    key: id,
    name: file_name,
    bytes,
    sent: offset,
    bytesPerSecond: 0,
    state: complete ? "complete" : mine ? "unfinished" : "theirs",
    cut: false,
    error: null,
    uploadId: id,
    local: false,
    by: mine ? null : (created_by ?? "somebody who has left"),
    expires,
  };
}

/** Whether a dataset can be made of it, now or once it is here: what a teammate is sending is theirs to use. */
export function isUsable({ state }: TrayRow): boolean {
  return state !== "theirs";
}

export interface TrayTotal {
  files: number;
  complete: number;
  bytes: number;
  sent: number;
  bytesPerSecond: number;
}

export function trayTotal(rows: readonly TrayRow[]): TrayTotal {
  const sum = (pick: (row: TrayRow) => number) => rows.reduce((total, row) => total + pick(row), 0);
  return {
    files: rows.length,
    complete: rows.filter(({ state }) => state === "complete").length,
    bytes: sum(({ bytes }) => bytes),
    sent: sum(({ sent }) => sent),
    bytesPerSecond: sum(({ bytesPerSecond }) => bytesPerSecond),
  };
}
