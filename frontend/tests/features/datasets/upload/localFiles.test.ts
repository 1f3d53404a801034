import { expect, it } from "vitest";
import { droppedFiles, isHiddenFile } from "@/features/datasets/upload/localFiles";

const FILE = new File(["x"], "x");

function fileEntry(fullPath: string) {
  return { isFile: true, isDirectory: false, fullPath, file: (take: (file: File) => void) => { take(FILE); } };
}

/** Returns a hundred entries at a time, as browsers do. */
function folderEntry(inside: unknown[]) {
  return {
    isFile: false,
    isDirectory: true,
    createReader: () => {
      const rest = [...inside];
      return { readEntries: (take: (some: unknown[]) => void) => { take(rest.splice(0, 100)); } };
    },
  };
}

function drop(...entries: unknown[]): DataTransfer {
  return { files: [], items: entries.map((entry) => ({ webkitGetAsEntry: () => entry })) } as unknown as DataTransfer;
}

it("reads nested folders completely, and keeps their paths", async () => {
  const many = Array.from({ length: 250 }, (_, n) => fileEntry(`/train/deep/${n}.txt`));
  const found = await droppedFiles(drop(fileEntry("/notes.txt"), folderEntry([fileEntry("/train/a.txt"), folderEntry(many)])));
  expect(found).toHaveLength(252);
  expect(found.slice(0, 3).map(({ name }) => name)).toEqual(["notes.txt", "train/a.txt", "train/deep/0.txt"]);
  expect(found.at(-1)?.name).toBe("train/deep/249.txt");
});

it("recognizes files that file managers create", () => {
  const names = ["train/.DS_Store", ".git/config", "Thumbs.db", "train/a.txt", "a.b.txt"];
  expect(names.filter((name) => isHiddenFile({ name, file: FILE }))).toEqual(names.slice(0, 3));
});
