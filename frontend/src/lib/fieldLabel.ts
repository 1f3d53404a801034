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

/** Labels of fields, by key or path, whose names do not make one. */
const LABELS: Readonly<Record<string, string>> = {
  every_steps: "Every (steps)",
  "validation.every_steps": "Validate every (steps)",
  "checkpoint.every_steps": "Save every (steps)",
  observe_every_steps: "Measure every (steps)",
  "fp8 observe_every_steps": "FP8: measure every (steps)",
  final_fraction: "Final learning rate (fraction of the peak)",
  micro_sequences: "Micro batch (sequences)",
  global_sequences: "Global batch (sequences)",
  weight_decay_of: "Weight decay applies to",
};

/** A spec field's label: `learning_rate` → `Learning rate`. */
export function fieldLabel(key: string, path = key): string {
  const label = LABELS[path] ?? LABELS[key];
  if (label !== undefined) return label;
  const text = key.split(/[_ ]/).map((word) => WORDS[word] ?? word).join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A label within a sentence: `Learning rate` → `learning rate`; `KV heads` stays. */
export function inSentence(label: string): string {
  const startsWithName = /^\S+[A-Z]/.test(label);
  return startsWithName ? label : label.charAt(0).toLowerCase() + label.slice(1);
}

/** `data.validation_fraction`, `zero_stage`: not one word, which may be of the sentence. */
const PATH_OR_KEY = /`?\b([a-z]\w*(?:[._][a-z0-9]\w*)+)\b`?/g;

/**
 * Names fields as the form does, by the labels of its fields by path: `data.validation_fraction` → “Validation fraction”,
 * `zero_stage` → “ZeRO stage”. Other words stay, such as the host name data.example.org.
 */
export function withFieldLabels(text: string, labels: ReadonlyMap<string, string>): string {
  const byKey = new Map([...labels].map(([path, label]) => [path.split(".").at(-1), label]));
  return text.replace(PATH_OR_KEY, (word, name: string) => {
    const label = labels.get(name) ?? byKey.get(name);
    return label === undefined ? word : `“${label}”`;
  });
}
