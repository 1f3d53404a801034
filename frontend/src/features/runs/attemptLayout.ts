/** What a run's newest attempt does, where that is not what its next one will: its layout was changed meanwhile. */
import type { Run } from "@/api/types";
import { LIVE } from "@/features/runs/layout";

/** The configuration as the newest attempt has it; the run's own where there was no attempt. */
export function specOfAttempt({ spec, attempt_layout: layout }: Run): Run["spec"] {
  if (!layout) return spec;
  const micro_sequences = layout.micro_sequences ?? spec.batch.micro_sequences;
  return { ...spec, parallelism: layout.parallelism, batch: { ...spec.batch, micro_sequences } };
}

/** A value that another attempt will have otherwise, in words. */
export function nowAndNext({ state, ended }: Run, now: string, next: string): string {
  if (ended !== null || state === "completing") return `ran ${now}; ${next} was for a next attempt`;
  return LIVE.has(state) ? `runs now ${now}, next attempt ${next}` : `last attempt ran ${now}, next attempt ${next}`;
}

/** Says above the values what is up with those that differ. */
export function layoutNote({ state, ended, attempt }: Run): string {
  const number = String(attempt);
  if (ended !== null || state === "completing") return `Its layout was changed during attempt ${number}, and no further attempt began in the new one.`;
  if (LIVE.has(state)) return `Its layout was changed. Attempt ${number} goes on as it began; the next one has the new layout.`;
  return `Its layout was changed. The next attempt, ${String(attempt + 1)}, has the new layout.`;
}
