/** A run's latest attempt, if its layout differs from that of the next one because it was changed in the meantime. */
import type { Run } from "@/api/types";
import { LIVE_STATES } from "@/features/runs/parallelism/layout";

/** The configuration of the latest attempt; the run's own if there was no attempt. */
export function attemptSpec({ spec, attempt_layout: layout }: Run): Run["spec"] {
  if (!layout) return spec;
  const micro_sequences = layout.micro_sequences ?? spec.batch.micro_sequences;
  return { ...spec, parallelism: layout.parallelism, batch: { ...spec.batch, micro_sequences } };
}

/** A value that differs between the latest and the next attempt. */
export function currentAndNext({ state, ended }: Run, now: string, next: string): string {
  if (ended !== null || state === "completing") return `${now}; ${next} was set for the next attempt`;
  return LIVE_STATES.has(state) ? `now ${now}, next attempt ${next}` : `last attempt ${now}, next attempt ${next}`;
}

/** The note above the values that explains why some differ. */
export function layoutNote({ state, ended, attempt }: Run): string {
  const number = String(attempt);
  if (ended !== null || state === "completing") return `The layout was changed during attempt ${number}, but no later attempt started with it.`;
  if (LIVE_STATES.has(state)) return `The layout was changed. Attempt ${number} keeps the old one; the next attempt uses the new one.`;
  return `The layout was changed. The next attempt, ${String(attempt + 1)}, uses the new one.`;
}
