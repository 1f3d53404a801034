import { expect, it } from "vitest";
import type { Upload } from "@/api/types";
import { nameFor } from "@/features/datasets/nameFor";
import { Speed } from "@/features/datasets/speed";
import { isUsable, trayRows, trayTotal } from "@/features/datasets/tray";
import type { Sending } from "@/features/datasets/uploads";

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

function aSending(change: Partial<Sending>): Sending {
  return {
    key: "k1",
    team: "lab",
    name: "a.txt",
    bytes: 100,
    sent: 40,
    bytesPerSecond: 10,
    state: "sending",
    cut: false,
    error: null,
    uploadId: "up_1",
    aside: false,
    ...change,
  };
}

it("lists each file once, in the order of names, with what only the server knows", () => {
  const server = [anUpload("up_1", "a.txt", 20), anUpload("up_2", "part 10.txt", 100), anUpload("up_3", "part 9.txt", 7), anUpload("up_4", "gone.txt", 1)];
  const rows = trayRows("lab", [aSending({}), aSending({ key: "k2", team: "other", uploadId: "up_9" })], server, new Set(["up_4"]));
  expect(rows.map(({ name, state, sent }) => [name, state, sent])).toEqual([
    ["a.txt", "sending", 40],
    ["part 9.txt", "unfinished", 7],
    ["part 10.txt", "complete", 100],
  ]);
  expect(trayTotal(rows)).toEqual({ files: 3, complete: 1, bytes: 300, sent: 147, bytesPerSecond: 10 });
});

it("leaves out what is sent for another purpose, here and in the server's list", () => {
  expect(trayRows("lab", [aSending({ aside: true })], [anUpload("up_1", "tokenizer.json", 20)], new Set())).toEqual([]);
});

it("names a dataset after the common folder, else after the first file", () => {
  expect(nameFor(["letters/a.jsonl", "letters/deep/b.jsonl"])).toBe("letters");
  expect(nameFor(["letters/a.jsonl.gz", "poems/b.jsonl"])).toBe("a");
  expect(nameFor(["notes.txt"])).toBe("notes");
  expect(nameFor(["dump.parquet.zst"])).toBe("dump");
});

it("tells the speed of the last seconds, and forgets a pause", () => {
  const speed = new Speed();
  expect([0, 1_000, 2_000].map((ms) => speed.at(ms, ms * 5))).toEqual([0, 5_000, 5_000]);
  speed.restart();
  expect(speed.at(60_000, 10_000)).toBe(0);
  expect(speed.at(61_000, 12_000)).toBe(2_000);
});

it("shows whose the files of teammates are, and uses none that is still on its way", () => {
  const theirs = { mine: false, created_by: "Grace" };
  const server = [{ ...anUpload("up_1", "a.txt", 20), ...theirs }, { ...anUpload("up_2", "b.txt", 100), ...theirs }, { ...anUpload("up_3", "c.txt", 1), ...theirs, created_by: null }];
  const rows = trayRows("lab", [], server, new Set());
  expect(rows.map((row) => [row.name, row.state, row.by, isUsable(row)])).toEqual([
    ["a.txt", "theirs", "Grace", false],
    ["b.txt", "complete", "Grace", true],
    ["c.txt", "theirs", "somebody who has left", false],
  ]);
});
