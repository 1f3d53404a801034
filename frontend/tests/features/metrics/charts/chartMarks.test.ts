import { expect, it } from "vitest";
import type { AttemptMark } from "@/api/types";
import { chartMarkers } from "@/features/metrics/charts/chartMarks";

const FIRST: AttemptMark = { attempt: 1, started: "2026-01-01T10:00:00Z", ended: "2026-01-01T10:05:00Z", reason: "crashed", resume_step: 0 };
const RUNNING: AttemptMark = { attempt: 2, started: "2026-01-01T10:06:00Z", ended: null, reason: null, resume_step: 40 };

function failures(attempts: readonly AttemptMark[]) {
  return chartMarkers(attempts, [], (step) => step, 57)
    .filter(({ kind }) => kind === "failure")
    .map(({ x, label }) => [x, label]);
}

it("marks a failure where the next attempt resumed", () => {
  expect(failures([FIRST, RUNNING])).toEqual([[40, "attempt 1 failed"]]);
});

it("marks the failure that ended the run at its newest step", () => {
  expect(failures([FIRST])).toEqual([[57, "attempt 1 failed"]]);
  expect(failures([{ ...FIRST, reason: "finished" }])).toEqual([]);
});
