import type { Preparation } from "@/api/types";
import { count } from "@/lib/format";

const STANDARD_BPE = 4_096;

/** A tokenizer in a few words: `BPE of 4,096`, `bytes`, `tokenizer tok_1`. */
export function tokenizerWords({ kind, vocabulary, source }: Preparation["tokenizer"]): string {
  if (kind === "bytes") return "bytes";
  if (kind === "bpe") return `BPE of ${count(vocabulary ?? STANDARD_BPE)}`;
  const size = vocabulary === null || vocabulary === undefined ? "" : ` of ${count(vocabulary)}`;
  return kind === "uploaded" ? `uploaded tokenizer ${source ?? ""}${size}` : `tokenizer of dataset ${source ?? ""}${size}`;
}
