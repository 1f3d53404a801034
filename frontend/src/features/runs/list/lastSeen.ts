/** When a user last dismissed a team's failures; stored in this browser. */
import type { Run } from "@/api/types";

/** First-time visitors see the failures of the last week. */
const FIRST_VISIT_MS = 7 * 24 * 3_600_000;

export function lastSeen(person: string, team: string, now = Date.now()): number {
  const stored = Number(localStorage.getItem(keyOf(person, team)) ?? NaN);
  return Number.isFinite(stored) ? stored : now - FIRST_VISIT_MS;
}

export function markSeen(person: string, team: string, now = Date.now()): number {
  localStorage.setItem(keyOf(person, team), String(now));
  return now;
}

/** The runs that failed after a time, latest first. */
export function newlyFailed(runs: readonly Run[], since: number): Run[] {
  const failed = runs.flatMap((run) => (run.ended == null ? [] : [{ run, at: new Date(run.ended).getTime() }]));
  return failed.filter(({ at }) => at > since).sort((one, other) => other.at - one.at).map(({ run }) => run);
}

function keyOf(person: string, team: string): string {
  return `trainwright.seen.${person}.${team}`;
}
