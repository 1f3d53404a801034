import { expect, it } from "vitest";
import type { PreviewFile } from "@/api/types";
import { needDifferentFields } from "@/features/datasets/create/commonFields";

function aFile(fields: readonly string[], problem: string | null): PreviewFile {
  return {
    upload: "up_1",
    name: "a.jsonl",
    format: "jsonl",
    compression: "none",
    columns: fields.map((name) => ({ name, type: "text", usable: true })),
    field: null,
    documents: [],
    rejected: [],
    problem,
  };
}

it("detects that files have no common field if that makes one unreadable", () => {
  const why = "There is no field 'body'.";
  expect(needDifferentFields([aFile(["body"], null), aFile(["text"], why)])).toBe(true);
  expect(needDifferentFields([aFile(["body", "id"], null), aFile(["text", "id"], why)])).toBe(false);
  expect(needDifferentFields([aFile(["messages"], null), aFile(["text"], null)])).toBe(false);
  expect(needDifferentFields([aFile(["body"], null), aFile([], "It is a PDF document.")])).toBe(false);
});
