/** The values of a stored spec as text. */
import type { Run } from "@/api/types";
import { automaticValue } from "@/features/runs/spec/automaticValues";
import type { Json, SpecField } from "@/features/runs/spec/specFields";
import { exactNumber } from "@/lib/format";

/** For fields in which empty has a special meaning. */
const EMPTY_TEXT: Record<string, string> = {
  "data.tokenizer.source": "none",
  "model.sliding_window": "none",
  "model.sliding_window_pattern": "none",
  "model.rope_scaling": "none",
  "model.no_rope_layer_interval": "none",
  "model.attn_logit_softcapping": "none",
  "model.final_logit_softcapping": "none",
  "memory.recompute_layers": "all",
  "resources.min_nodes": "always all nodes",
  "resources.gpu_model": "any",
  "resources.gpu_memory_gib": "any",
  "resources.gpu_capability": "any",
  "resources.max_attempts": "no limit",
  "resources.max_hours": "no limit",
  "optimizer.clip_norm": "off",
  "optimizer.learning_rate_factors": "one rate for all weights",
  "schedule.decay_steps": "the entire schedule",
  "precision.fp8": "off",
};

/** What the empty value of a field means. */
export function emptyText(spec: Run["spec"], path: string): string {
  const value = automaticValue(spec, path);
  return value === undefined ? (EMPTY_TEXT[path] ?? "automatic") : `${exactNumber(value)} (automatic)`;
}

/** What it means that a spec lacks a field: that the optional group with it is empty. */
export function missingText(path: string): string {
  return EMPTY_TEXT[path.slice(0, path.lastIndexOf("."))] ?? "–";
}

/** A value that is not empty; texts of a list are on lines of their own. */
export function formatValue(value: Json): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return exactNumber(value);
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value.length === 0 ? "none" : value.join("\n");
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The text that a field holds, as it reads in a sentence: 4,096 for `4096`, no for `false`. */
export function fieldValueText({ kind }: SpecField, text: string): string {
  if (kind === "switch") return text === "true" ? "yes" : "no";
  const number = Number(text);
  return (kind === "integer" || kind === "number") && text.trim() !== "" && !Number.isNaN(number) ? exactNumber(number) : text;
}

export function defaultValueText(field: SpecField): string {
  return fieldValueText(field, field.defaultText);
}
