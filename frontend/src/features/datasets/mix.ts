/** The sources of a mixture as the form holds them, and back. */
import type { Recipe } from "@/api/types";

export interface SourceDraft {
  key: string;
  /** Id; empty until chosen. */
  dataset: string;
  /** Empty: the newest. */
  version: string;
  weight: string;
}

export function sourcesOf(mix: Recipe["mix"], makeKey: () => string): SourceDraft[] {
  return mix.map(({ dataset, version, weight }) => ({
    key: makeKey(),
    dataset,
    version: version === null || version === undefined ? "" : String(version),
    weight: String(weight),
  }));
}

/** Null while something is missing or no number. */
export function mixOf(sources: readonly SourceDraft[]): Recipe["mix"] | null {
  const mix = sources.map(({ dataset, version, weight }) => ({
    dataset,
    version: version.trim() === "" ? null : Number(version),
    weight: weight.trim() === "" ? Number.NaN : Number(weight),
  }));
  const wrong = mix.some((one) => one.dataset === "" || Number.isNaN(one.version) || !(one.weight > 0));
  return wrong || mix.length === 0 ? null : mix;
}

/** The id of a dataset of which the same version stands in two rows; null where all differ. */
export function twiceIn(sources: readonly SourceDraft[]): string | null {
  const seen = new Set<string>();
  for (const { dataset, version } of sources) {
    const key = `${dataset} ${version.trim()}`;
    if (dataset !== "" && seen.has(key)) return dataset;
    seen.add(key);
  }
  return null;
}

/** Each source's part of the mixture's characters, where the weights are numbers. */
export function sharesOf(sources: readonly SourceDraft[]): (number | null)[] {
  const weights = sources.map(({ weight }) => Number(weight));
  const sum = weights.reduce((total, one) => total + one, 0);
  const bad = weights.some((one) => !(one > 0)) || !Number.isFinite(sum);
  return weights.map((one) => (bad ? null : one / sum));
}
