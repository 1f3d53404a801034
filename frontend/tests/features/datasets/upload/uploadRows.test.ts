import { expect, it } from "vitest";
import type { Upload } from "@/api/types";
import { defaultName } from "@/features/datasets/create/defaultName";
import { Throughput } from "@/features/datasets/upload/throughput";
import { isUsable, uploadRows, uploadTotals } from "@/features/datasets/upload/uploadRows";
import type { UploadTask } from "@/features/datasets/upload/uploadStore";

function anUpload(id: string, name: string, offset: number): Upload {
  return {
    id,
    file_name: name,
    bytes: 100,
    offset,
    complete: offset === 100,
    created: "2026-11-21T13:00:00Z",
    created_by: "Ada",
    mine: true,
    expires: "2026-11-28T13:00:00Z",
  };
}

function aSending(change: Partial<UploadTask>): UploadTask {
  return {
    key: "k1",
    team: "lab",
    name: "a.txt",
    bytes: 100,
    sent: 40,
    bytesPerSecond: 10,
    state: "sending",
    isOffline: false,
    error: null,
    uploadId: "up_1",
    isStandalone: false,
    ...change,
  };
}

it("lists each file once, sorted by name, including uploads that only the server knows", () => {
  const server = [anUpload("up_1", "a.txt", 20), anUpload("up_2", "part 10.txt", 100), anUpload("up_3", "part 9.txt", 7), anUpload("up_4", "gone.txt", 1)];
  const rows = uploadRows("lab", [aSending({}), aSending({ key: "k2", team: "other", uploadId: "up_9" })], server, new Set(["up_4"]));
  expect(rows.map(({ name, state, sent }) => [name, state, sent])).toEqual([
    ["a.txt", "sending", 40],
    ["part 9.txt", "unfinished", 7],
    ["part 10.txt", "complete", 100],
  ]);
  expect(uploadTotals(rows)).toEqual({ files: 3, complete: 1, bytes: 300, sent: 147, bytesPerSecond: 10 });
});

it("tells files of the same name apart", () => {
  const begun = (id: string, created: string) => ({ ...anUpload(id, "b.txt", 100), created });
  const server = [begun("up_3", "2026-11-21T13:00:00Z"), begun("up_2", "2026-11-20T13:00:00Z")];
  const rows = uploadRows("lab", [aSending({ uploadId: "up_9" }), aSending({ key: "k2", name: "b.txt", uploadId: "up_8" })], server, new Set());
  expect(rows.map(({ name, label }) => [name, label])).toEqual([
    ["a.txt", "a.txt"],
    ["b.txt", expect.stringMatching(/^b\.txt \(1 of 3, uploaded 20 Nov \d\d:00\)$/)],
    ["b.txt", expect.stringMatching(/^b\.txt \(2 of 3, uploaded 21 Nov \d\d:00\)$/)],
    ["b.txt", "b.txt (3 of 3, selected in this browser)"],
  ]);
});

it("omits uploads for other purposes, here and in the server's list", () => {
  expect(uploadRows("lab", [aSending({ isStandalone: true })], [anUpload("up_1", "tokenizer.json", 20)], new Set())).toEqual([]);
});

it("names a dataset after the common folder, else the first file", () => {
  expect(defaultName(["letters/a.jsonl", "letters/deep/b.jsonl"])).toBe("letters");
  expect(defaultName(["letters/a.jsonl.gz", "poems/b.jsonl"])).toBe("a");
  expect(defaultName(["notes.txt"])).toBe("notes");
  expect(defaultName(["dump.parquet.zst"])).toBe("dump");
});

it("measures the speed of the last seconds, and ignores pauses", () => {
  const speed = new Throughput();
  expect([0, 1_000, 2_000].map((ms) => speed.at(ms, ms * 5))).toEqual([0, 5_000, 5_000]);
  speed.restart();
  expect(speed.at(60_000, 10_000)).toBe(0);
  expect(speed.at(61_000, 12_000)).toBe(2_000);
});

it("shows whose files are teammates', and uses none that is still uploading", () => {
  const theirs = { mine: false, created_by: "Grace" };
  const server = [{ ...anUpload("up_1", "a.txt", 20), ...theirs }, { ...anUpload("up_2", "b.txt", 100), ...theirs }, { ...anUpload("up_3", "c.txt", 1), ...theirs, created_by: null }];
  const rows = uploadRows("lab", [], server, new Set());
  expect(rows.map((row) => [row.name, row.state, row.by, isUsable(row)])).toEqual([
    ["a.txt", "theirs", "Grace", false],
    ["b.txt", "complete", "Grace", true],
    ["c.txt", "theirs", "a former member", false],
  ]);
});
