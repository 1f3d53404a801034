/** A run's progress, as values and as text. */
import type { Run, RunState } from "@/api/types";
import { count, duration, percent, plural, secondsBetween } from "@/lib/format";

const FINAL: ReadonlySet<RunState> = new Set(["succeeded", "failed", "cancelled"]);
/** States in which the metrics say all: a running run's sentence is its step. */
const WITHOUT_SENTENCE: ReadonlySet<RunState> = new Set(["running", "completing", "succeeded"]);

export function isFinal(state: RunState): boolean {
  return FINAL.has(state);
}

/** Whether a row shows the run's metrics; without any it shows its sentence instead. */
export function hasMetrics(run: Run): boolean {
  return "loss" in run.summary.values;
}

/** Whether a row shows the run's sentence, such as why it waits or has ended. */
export function showsSentence(run: Run): boolean {
  return !WITHOUT_SENTENCE.has(run.state) || !hasMetrics(run);
}

/** The remaining training time, if the trainer has reported it; work after the last step is not included. */
export function secondsLeft(run: Run): number | undefined {
  return run.state === "running" && run.summary.step < run.spec.schedule.steps ? run.summary.values["eta_seconds"] : undefined;
}

/** Whether a run does its last work, after the last step: it saves, then exports. Its sentence says which. */
export function isFinishing({ state, summary, spec }: Run): boolean {
  return state === "completing" || (state === "running" && summary.step >= spec.schedule.steps);
}

/** `in 1 h 15 min` if it succeeded, `after 6 min` if not, `1 h 15 min left` while it trains, what it does after the last step, else `started 6 min ago`. */
export function timeSentence(run: Run, now: number): string {
  const time = timeText(run, now);
  if (run.state === "succeeded") return `in ${time}`;
  if (isFinal(run.state)) return run.started == null ? `after ${time} in the queue` : `after ${time}`;
  if (secondsLeft(run) !== undefined) return time;
  if (isFinishing(run)) return run.sentence;
  if (run.paused) return `after ${time}`;
  return `${startOf(run) === run.created ? "submitted" : "started"} ${time} ago`;
}

/** `step 120 of 400`, or after the end `400 steps, 45.2 % MFU`: what a narrow row shows beside loss and time. */
export function progressText(run: Run): string {
  const { state, summary, spec } = run;
  if (isFinishing(run)) return run.sentence;
  if (!isFinal(state)) return `step ${count(summary.step)} of ${count(spec.schedule.steps)}`;
  const { mfu } = summary.values;
  return `${plural(summary.step, "step")}${mfu === undefined ? "" : `, ${percent(mfu)} % MFU`}`;
}

/** `1 h 15 min left` while it trains, else how long it ran until its end or pause, or how long ago it started. */
export function timeText(run: Run, now: number): string {
  const left = secondsLeft(run);
  if (left !== undefined) return `${duration(left)} left`;
  return duration(secondsRun(run) ?? secondsBetween(startOf(run), run.ended ?? run.paused ?? now));
}

/** How long an ended or paused run was on nodes, without pauses and the queue; undefined if it never was. */
export function secondsRun({ state, run_seconds: seconds }: Run): number | undefined {
  return seconds > 0 && (isFinal(state) || state === "paused") ? seconds : undefined;
}

/** A run that waits again, after a pause or another attempt, is not running since its first start. */
function startOf({ state, started, created }: Run): string {
  return state === "queued" ? created : (started ?? created);
}
