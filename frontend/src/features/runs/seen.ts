/** Until when a person has seen what failed in a team; kept in this browser. */
import type { Run } from "@/api/types";

/** Whoever comes for the first time is told of the last week. */
const FIRST_LOOK_MS = 7 * 24 * 3_600_000;

export function seenUntil(person: string, team: string, now = Date.now()): number {
  const stored = Number(localStorage.getItem(keyOf(person, team)) ?? NaN);
  return Number.isFinite(stored) ? stored : now - FIRST_LOOK_MS;
}

export function markSeen(person: string, team: string, now = Date.now()): number {
  localStorage.setItem(keyOf(person, team), String(now));
  return now;
}

/** The runs that failed after a moment, the last one first. */
export function newlyFailed(runs: readonly Run[], seen: number): Run[] {
  const failed = runs.flatMap((run) => (run.ended == null ? [] : [{ run, at: new Date(run.ended).getTime() }]));
  return failed.filter(({ at }) => at > seen).sort((one, other) => other.at - one.at).map(({ run }) => run);
}

function keyOf(person: string, team: string): string {
  return `trainwright.seen.${person}.${team}`;
}
