import { expect, it } from "vitest";
import { timeSentence } from "@/lib/runs/runProgress";
import { aRun } from "@tests/support/runs";

const NOW = Date.parse("2026-02-01T10:10:00Z");
const CREATED = "2026-02-01T10:00:00Z";
const STARTED = "2026-02-01T10:04:00Z";

it.each([
  [aRun({ state: "queued", created: CREATED, started: null, ended: null }), "submitted 10 min ago"],
  [aRun({ state: "paused", created: CREATED, started: STARTED, ended: null, paused: "2026-02-01T10:07:00Z" }), "after 3 min"],
  [aRun({ state: "succeeded", created: CREATED, started: STARTED, ended: "2026-02-01T10:09:00Z" }), "in 5 min"],
])("says what a run's time counts from", (run, words) => {
  expect(timeSentence(run, NOW)).toBe(words);
});
