import type { Preparation } from "@/api/types";
import { count } from "@/lib/format";

const DEFAULT_BPE_VOCABULARY = 4_096;

/** A short description of a tokenizer: `BPE, 4,096 tokens`, `bytes`, `uploaded tokenizer tok_1`; of another dataset or of `ownDataset` itself. */
export function tokenizerText({ kind, vocabulary, source }: Preparation["tokenizer"], ownDataset: string): string {
  if (kind === "bytes") return "bytes";
  if (kind === "bpe") return `BPE, ${count(vocabulary ?? DEFAULT_BPE_VOCABULARY)} tokens`;
  const size = vocabulary === null || vocabulary === undefined ? "" : ` of ${count(vocabulary)}`;
  return kind === "uploaded" ? `uploaded tokenizer ${source ?? ""}${size}` : `tokenizer of ${source === ownDataset ? "this dataset" : `dataset ${source ?? ""}`}${size}`;
}
