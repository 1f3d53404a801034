const WORDS: Record<string, string> = { fp8: "FP8", kv: "KV", rope: "RoPE", bpe: "BPE", std: "deviation", epsilon: "epsilon" };

/** A spec field's label: `learning_rate` → `Learning rate`. */
export function fieldLabel(key: string): string {
  const words = key.split(/[_ ]/).map((word) => WORDS[word] ?? word);
  const text = words.join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
