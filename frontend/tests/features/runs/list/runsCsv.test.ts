import { expect, it } from "vitest";
import { runsCsv } from "@/features/runs/list/runsCsv";
import { shortIdsOf } from "@/features/runs/list/shortIds";
import { aRun } from "@tests/support/runs";

it("writes runs as CSV that a spreadsheet reads as it was", () => {
  const text = runsCsv([aRun({ name: 'a "b", c', created_by: "=SUM(A1)", tags: ["x", "y"] })], new Map([["ds_1", "letters"]]));
  const [head = "", row = "", end] = text.split("\r\n");
  expect(head.split(",").slice(0, 5)).toEqual(["id", "name", "state", "dataset", "layers"]);
  expect(row).toContain('run_1,"a ""b"", c",running,letters,2,64,bf16,0.001,8,1,1200,5000,3.124,,0.382,441037,');
  expect(row).toContain("x y,'=SUM(A1),2026-11-21T13:00:00Z");
  expect(end).toBe("");
});

it("tells runs of the same name apart by the end of their ids", () => {
  const runs = [aRun({ id: "run_aaaaabbbbb" }), aRun({ id: "run_aaaaaccccc" }), aRun({ id: "run_ddddd", name: "other" })];
  expect([...shortIdsOf(runs)]).toEqual([
    ["run_aaaaabbbbb", "bbbbb"],
    ["run_aaaaaccccc", "ccccc"],
  ]);
});
