import { expect, it } from "vitest";
import type { Checkpoint } from "@/api/types";
import { curlSnippet, fileName, contentText, originText, pythonSnippet } from "@/features/checkpoints/checkpointText";

const CHECKPOINT: Checkpoint = {
  id: "ck_1",
  run: "run_1",
  run_name: "pilot 7; rm",
  kind: "state",
  step: 1_200,
  attempt: 2,
  bytes: 1_600_000,
  created: "2026-11-21T13:00:00Z",
  valid: true,
  pinned: false,
  contents: { ranks: 2, parameters: 134_000, dtypes: { int64: 1_000, float32: 402_000 }, resumed_from_step: 1_000 },
};

it("describes a checkpoint's content and origin", () => {
  expect(contentText(CHECKPOINT)).toBe("134 k parameters; 402 k float32 + 1,000 int64 values, saved by 2 ranks");
  expect(originText(CHECKPOINT)).toBe("attempt 2, from step 1,000");
  const old = { ...CHECKPOINT, contents: null };
  expect([contentText(old), originText(old)]).toEqual(["", "attempt 2"]);
});

it("writes snippets that are safe in a shell and contain no key", () => {
  expect(fileName(CHECKPOINT)).toBe("pilot-7-rm-step-1200");
  const curl = curlSnippet("http://here/archive", `${fileName(CHECKPOINT)}.tar`);
  expect(curl).toContain("-o pilot-7-rm-step-1200.tar");
  expect(curl).toContain("$TRAINWRIGHT_KEY");
  expect(pythonSnippet("http://here", "lab", CHECKPOINT, "pilot")).toContain('download(\n        "run_1", Path("pilot"), checkpoint_id="ck_1"');
});
