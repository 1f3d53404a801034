import type { RunSamples } from "@/api/types";

/** Which samples are shown, as URL search parameters. */
export interface SampleSearch {
  /** The chosen step; the newest one if absent. */
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

/** The samples of a step. If its row was deleted to save space, the newest samples before it. */
export function samplesAt(written: readonly RunSamples[], step: number | undefined): RunSamples | undefined {
  return step === undefined ? written[0] : (written.find((one) => one.step <= step) ?? written.at(-1));
}

export interface Pair {
  prompt: string;
  /** The continuation at each shown validation; null if the validation did not have the prompt. */
  texts: (string | null)[];
}

/** The prompts of the shown validations, each with its continuations. */
export function pairsOf(shown: readonly RunSamples[]): Pair[] {
  const longest = shown.reduce<RunSamples["samples"]>((most, { samples }) => (samples.length > most.length ? samples : most), []);
  return longest.map(({ prompt }, index) => ({
    prompt,
    texts: shown.map(({ samples }) => (samples[index]?.prompt === prompt ? samples[index].text : null)),
  }));
}
