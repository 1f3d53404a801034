import type { RunSamples } from "@/api/types";

/** Which samples are shown, as in the address. */
export interface SampleSearch {
  /** The step that was chosen; the newest one if absent. */
  sampled?: number | undefined;
  /** A second step to compare with. */
  beside?: number | undefined;
}

export function parseSampleSearch({ sampled, beside }: Record<string, unknown>): SampleSearch {
  return { ...(isStep(sampled) ? { sampled } : {}), ...(isStep(beside) ? { beside } : {}) };
}

function isStep(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0;
}

/** The validation of a step, or the newest one up to it: its row may have been thinned out. */
export function samplesAt(written: readonly RunSamples[], step: number | undefined): RunSamples | undefined {
  return step === undefined ? written[0] : (written.find((one) => one.step <= step) ?? written.at(-1));
}

export interface Pair {
  prompt: string;
  /** Continuations at each shown validation; null if it had no such prompt. */
  texts: (string | null)[];
}

/** The prompts of the shown validations with what was written after them. A run's prompts do not change, but attempts may. */
export function pairsOf(shown: readonly RunSamples[]): Pair[] {
  const longest = shown.reduce<RunSamples["samples"]>((most, { samples }) => (samples.length > most.length ? samples : most), []);
  return longest.map(({ prompt }, index) => ({
    prompt,
    texts: shown.map(({ samples }) => (samples[index]?.prompt === prompt ? samples[index].text : null)),
  }));
}
