/** When a file was last changed, kept beside the id of its upload: after a reload it tells the same file from a newer one of the same name and size. */

const PREFIX = "trainwright.upload.";

export function rememberFile(uploadId: string, file: File): void {
  localStorage.setItem(PREFIX + uploadId, String(file.lastModified));
}

export function forgetFile(uploadId: string): void {
  localStorage.removeItem(PREFIX + uploadId);
}

/** Whether nothing speaks against it; an upload that another browser began is known by name and size only. */
export function isSameFile(uploadId: string, file: File): boolean {
  const changed = localStorage.getItem(PREFIX + uploadId);
  return changed === null || changed === String(file.lastModified);
}
