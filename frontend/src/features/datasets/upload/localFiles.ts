/** Files that were dropped or chosen, with their paths inside folders. */

export interface LocalFile {
  /** Includes folders: `train/a.jsonl`. */
  name: string;
  file: File;
}

/** Files that file managers create are not data. */
const HIDDEN_OR_SYSTEM = /^(\..*|Thumbs\.db|desktop\.ini)$/;

export function isHiddenFile({ name }: LocalFile): boolean {
  return name.split("/").some((part) => HIDDEN_OR_SYSTEM.test(part));
}

/** Files of an input, with paths for folders. */
export function chosenFiles(list: FileList | null): LocalFile[] {
  return Array.from(list ?? []).map((file) => ({ name: file.webkitRelativePath || file.name, file }));
}

/**
 * Files of a drop, including those inside folders. The entries must be read before the first await, because the
 * browser then clears the list.
 */
export async function droppedFiles(transfer: DataTransfer): Promise<LocalFile[]> {
  const files = chosenFiles(transfer.files);
  const entries = Array.from(transfer.items).map((item) => item.webkitGetAsEntry());
  if (!entries.some((entry) => entry?.isDirectory)) return files;
  const found = await Promise.all(entries.filter((entry) => entry !== null).map(filesOf));
  return found.flat();
}

async function filesOf(entry: FileSystemEntry): Promise<LocalFile[]> {
  if (isFileEntry(entry)) {
    const file = await new Promise<File>((resolve, reject) => {
      entry.file(resolve, reject);
    });
    return [{ name: entry.fullPath.replace(/^\//, ""), file }];
  }
  const found: LocalFile[] = [];
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  // A reader returns up to a hundred entries at a time, and none at the end.
  for (let batch = await read(reader); batch.length > 0; batch = await read(reader)) {
    for (const inner of batch) found.push(...(await filesOf(inner)));
  }
  return found;
}

function read(reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> {
  return new Promise((resolve, reject) => {
    reader.readEntries(resolve, reject);
  });
}

function isFileEntry(entry: FileSystemEntry): entry is FileSystemFileEntry {
  return entry.isFile;
}
