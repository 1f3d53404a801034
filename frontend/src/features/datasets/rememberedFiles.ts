/** When a file was last changed, kept beside the id of its upload: after a reload it tells the same file from a newer one of the same name and size. A browser that keeps nothing remembers none. */

const PREFIX = "trainwright.upload.";

export function rememberFile(uploadId: string, file: File): void {
  try {
    localStorage.setItem(PREFIX + uploadId, String(file.lastModified));
  } catch {
    // Full or forbidden: the person is asked when the file is chosen again.
  }
}

export function forgetFile(uploadId: string): void {
  try {
    localStorage.removeItem(PREFIX + uploadId);
  } catch {
    // Nothing was kept.
  }
}

/** Whether it is the file that was sent; null when nothing is known, as of an upload that another browser began. */
export function isSameFile(uploadId: string, file: File): boolean | null {
  try {
    const changed = localStorage.getItem(PREFIX + uploadId);
    return changed === null ? null : changed === String(file.lastModified);
  } catch {
    return null;
  }
}
