import { expect, it } from "vitest";
import { progressText, timeSentence } from "@/lib/runs/runProgress";
import { aRun } from "@tests/support/runs";

const NOW = Date.parse("2026-02-01T10:10:00Z");
const CREATED = "2026-02-01T10:00:00Z";
const STARTED = "2026-02-01T10:04:00Z";
const AFTER_THE_LAST_STEP = { started: STARTED, summary: { ...aRun().summary, step: 5_000 } };

it.each([
  [aRun({ state: "queued", created: CREATED, started: null, ended: null }), "submitted 10 min ago"],
  [aRun({ state: "queued", created: CREATED, started: STARTED, ended: null }), "submitted 10 min ago"],
  [aRun({ state: "paused", created: CREATED, started: STARTED, ended: null, paused: "2026-02-01T10:07:00Z" }), "after 3 min"],
  [aRun({ state: "succeeded", created: CREATED, started: STARTED, ended: "2026-02-01T10:09:00Z" }), "in 5 min"],
  [aRun({ state: "succeeded", created: CREATED, started: STARTED, ended: "2026-02-01T10:09:00Z", run_seconds: 120 }), "in 2 min"],
  [aRun({ state: "paused", created: CREATED, started: STARTED, ended: null, paused: "2026-02-01T10:07:00Z", run_seconds: 60 }), "after 1 min"],
  [aRun({ state: "starting", created: CREATED, started: STARTED, ended: null, run_seconds: 60 }), "started 6 min ago"],
  [aRun({ state: "failed", created: CREATED, started: STARTED, ended: "2026-02-01T10:09:00Z" }), "after 5 min"],
  [aRun({ state: "cancelled", created: CREATED, started: null, ended: "2026-02-01T10:09:00Z" }), "after 9 min in the queue"],
  [aRun({ state: "starting", created: CREATED, started: STARTED, ended: null }), "started 6 min ago"],
  [aRun({ state: "running", started: STARTED }), "1 h 15 min left"],
  [aRun({ ...AFTER_THE_LAST_STEP, state: "running", sentence: "step 5,000 of 5,000, saving the last checkpoint" }), "step 5,000 of 5,000, saving the last checkpoint"],
  [aRun({ ...AFTER_THE_LAST_STEP, state: "completing", sentence: "exporting step 5,000" }), "exporting step 5,000"],
])("shows what a run's time counts from", (run, words) => {
  expect(timeSentence(run, NOW)).toBe(words);
});

it.each([
  [aRun({ state: "running" }), "step 1,200 of 5,000"],
  [aRun({ ...AFTER_THE_LAST_STEP, state: "completing", sentence: "exporting step 5,000" }), "exporting step 5,000"],
  [aRun({ ...AFTER_THE_LAST_STEP, state: "succeeded", summary: { ...AFTER_THE_LAST_STEP.summary, values: { loss: 2, mfu: 0.452 } } }), "5,000 steps, 45.2 % MFU"],
  [aRun({ ...AFTER_THE_LAST_STEP, state: "succeeded", summary: { ...AFTER_THE_LAST_STEP.summary, values: { loss: 2 } } }), "5,000 steps"],
])("shows a run's progress without its loss and time", (run, words) => {
  expect(progressText(run)).toBe(words);
});
