/** Converts the sources of a mixture to form values and back. */
import type { CurationSpec } from "@/api/types";

export interface SourceDraft {
  key: string;
  /** Dataset id; empty until chosen. */
  dataset: string;
  /** Empty: the newest. */
  version: string;
  weight: string;
}

export function sourcesOf(mix: CurationSpec["mix"], makeKey: () => string): SourceDraft[] {
  return mix.map(({ dataset, version, weight }) => ({
    key: makeKey(),
    dataset,
    version: version === null || version === undefined ? "" : String(version),
    weight: String(weight),
  }));
}

/** The mixture; null while a value is missing or not a number. */
export function mixOf(sources: readonly SourceDraft[]): CurationSpec["mix"] | null {
  const mix = sources.map(({ dataset, version, weight }) => ({
    dataset,
    version: version.trim() === "" ? null : Number(version),
    weight: weight.trim() === "" ? Number.NaN : Number(weight),
  }));
  const isInvalid = mix.some((one) => one.dataset === "" || Number.isNaN(one.version) || !(one.weight > 0));
  return isInvalid || mix.length === 0 ? null : mix;
}

/** The id of a dataset that is listed twice with the same version; null if there is none. */
export function duplicateSource(sources: readonly SourceDraft[]): string | null {
  const seen = new Set<string>();
  for (const { dataset, version } of sources) {
    const key = `${dataset} ${version.trim()}`;
    if (dataset !== "" && seen.has(key)) return dataset;
    seen.add(key);
  }
  return null;
}

/** Each source's share of the mixture's characters; null while a weight is invalid. */
export function sharesOf(sources: readonly SourceDraft[]): (number | null)[] {
  const weights = sources.map(({ weight }) => Number(weight));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const isInvalid = weights.some((weight) => !(weight > 0)) || !Number.isFinite(sum);
  return weights.map((weight) => (isInvalid ? null : weight / sum));
}
