import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Checkpoint } from "@/api/types";
import { SnippetDialog } from "@/features/checkpoints/SnippetDialog";

const CHECKPOINT: Checkpoint = {
  id: "ckpt_1",
  run: "run_1",
  run_name: "pilot-7",
  kind: "state",
  step: 1_200,
  attempt: 1,
  bytes: 1_600_000,
  created: "2026-11-21T13:00:00Z",
  valid: true,
  pinned: false,
  contents: null,
};

it("wraps long lines, so that no part of a snippet is hidden", () => {
  render(<SnippetDialog team="lab" checkpoint={CHECKPOINT} onClose={() => undefined} />);
  const [curl, python] = [screen.getByRole("region", { name: /^curl/ }), screen.getByRole("region", { name: /^Python/ })];
  expect(curl.textContent).toContain("/api/v1/teams/lab/runs/run_1/checkpoints/ckpt_1");
  for (const { className } of [curl, python]) expect(className).toMatch(/whitespace-pre-wrap wrap-anywhere/);
});
