/**
 * Stores each upload's file modification time, to distinguish the same file from a newer one with the same name and
 * size after a reload. A browser without storage remembers nothing.
 */

const PREFIX = "trainwright.upload.";

export function rememberFile(uploadId: string, file: File): void {
  try {
    localStorage.setItem(PREFIX + uploadId, String(file.lastModified));
  } catch {
    // Storage is full or forbidden; the user is asked when the file is chosen again.
  }
}

export function forgetFile(uploadId: string): void {
  try {
    localStorage.removeItem(PREFIX + uploadId);
  } catch {
    // Nothing was stored.
  }
}

/** Whether this browser uploaded it. */
export function isRemembered(uploadId: string): boolean {
  try {
    return localStorage.getItem(PREFIX + uploadId) !== null;
  } catch {
    return false;
  }
}

/** Whether it is the file that was uploaded; null if unknown, such as for an upload from another browser. */
export function isSameFile(uploadId: string, file: File): boolean | null {
  try {
    const changed = localStorage.getItem(PREFIX + uploadId);
    return changed === null ? null : changed === String(file.lastModified);
  } catch {
    return null;
  }
}
