/** Files that were dropped or chosen, by their names within the folders that they came in. */

export interface NamedFile {
  /** With the folders: `train/a.jsonl`. */
  name: string;
  file: File;
}

/** What file managers leave behind is no data. */
const LITTER = /^(\..*|Thumbs\.db|desktop\.ini)$/;

export function isLitter({ name }: NamedFile): boolean {
  return name.split("/").some((part) => LITTER.test(part));
}

/** Files of an input, a folder's with their paths. */
export function chosenFiles(list: FileList | null): NamedFile[] {
  return Array.from(list ?? []).map((file) => ({ name: file.webkitRelativePath || file.name, file }));
}

/** Files of a drop, folders opened. The entries must be taken before the first wait: the browser then empties the list. */
export async function droppedFiles(transfer: DataTransfer): Promise<NamedFile[]> {
  const plain = chosenFiles(transfer.files);
  const entries = Array.from(transfer.items).map((item) => item.webkitGetAsEntry());
  if (!entries.some((entry) => entry?.isDirectory)) return plain;
  const found = await Promise.all(entries.filter((entry) => entry !== null).map(filesOf));
  return found.flat();
}

async function filesOf(entry: FileSystemEntry): Promise<NamedFile[]> {
  if (isFileEntry(entry)) {
    const file = await new Promise<File>((resolve, reject) => {
      entry.file(resolve, reject);
    });
    return [{ name: entry.fullPath.replace(/^\//, ""), file }];
  }
  const found: NamedFile[] = [];
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  // A reader gives a hundred entries at a time, and none at the end.
  for (let some = await read(reader); some.length > 0; some = await read(reader)) {
    for (const inner of some) found.push(...(await filesOf(inner)));
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
