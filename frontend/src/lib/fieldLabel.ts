const WORDS: Record<string, string> = {
  fp8: "FP8",
  bf16: "BF16",
  fp32: "FP32",
  kv: "KV",
  qk: "QK",
  rope: "RoPE",
  bpe: "BPE",
  zero: "ZeRO",
  gpu: "GPU",
  gib: "GiB",
  std: "deviation",
  attn: "attention",
  freq: "frequency",
};

/** A spec field's label: `learning_rate` → `Learning rate`. */
export function fieldLabel(key: string): string {
  const text = key.split(/[_ ]/).map((word) => WORDS[word] ?? word).join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A label within a sentence: `Learning rate` → `learning rate`; `KV heads` stays. */
export function inSentence(label: string): string {
  const startsWithName = /^\S+[A-Z]/.test(label);
  return startsWithName ? label : label.charAt(0).toLowerCase() + label.slice(1);
}

const PATH = /`?\b((?:batch|checkpoint|data|memory|model|optimizer|parallelism|precision|resources|schedule|validation)\.(?:\w+\.)*(\w+))`?/g;
const KEY = /`?\b([a-z]+(?:_[a-z0-9]+)+)\b`?/g;

/**
 * Names fields as the form does: `data.validation_fraction` → “Validation fraction”. With the labels of the form's fields by
 * path, also the keys of fields alone, such as `zero_stage`; other words stay.
 */
export function withFieldLabels(text: string, labels: ReadonlyMap<string, string> = new Map()): string {
  const byKey = new Map([...labels].map(([path, label]) => [path.split(".").at(-1), label]));
  return text
    .replace(PATH, (_quoted, path: string, key: string) => `“${labels.get(path) ?? fieldLabel(key)}”`)
    .replace(KEY, (word, key: string) => (byKey.has(key) ? `“${byKey.get(key)}”` : word));
}
