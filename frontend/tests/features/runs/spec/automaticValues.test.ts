import { expect, it } from "vitest";
import { automaticValue } from "@/features/runs/spec/automaticValues";
import { aRun } from "@tests/support/runs";

const { spec } = aRun();
const wide = { ...spec, model: { ...spec.model, width: 192, heads: 6 }, resources: { ...spec.resources, nodes: 2, slots_per_node: 4 } };
const gelu = { ...wide, model: { ...wide.model, activation: "gelu" as const } };
const wsd = { ...spec, schedule: { ...spec.schedule, kind: "wsd" as const, steps: 101, warmup_steps: 10 } };
const bytes = { ...spec, data: { ...spec.data, tokenizer: { kind: "bytes" as const, vocabulary: null } } };

it.each([
  [spec, "data.tokenizer.vocabulary", 4_096],
  [bytes, "data.tokenizer.vocabulary", 257],
  [wide, "model.head_size", 32],
  [wide, "model.kv_heads", 6],
  [wide, "model.feed_forward", 512],
  [gelu, "model.feed_forward", 768],
  [spec, "model.feed_forward", 192],
  [wide, "parallelism.data", 8],
  [{ ...wide, parallelism: { ...wide.parallelism, tensor: 2, pipeline: 2 } }, "parallelism.data", 2],
  [wsd, "schedule.decay_steps", 21],
  [{ ...wsd, schedule: { ...wsd.schedule, warmup_steps: 95 } }, "schedule.decay_steps", 6],
  [spec, "schedule.decay_steps", undefined],
  [spec, "schedule.warmup_steps", 50],
  [wsd, "schedule.warmup_steps", 10],
  [{ ...wsd, schedule: { ...wsd.schedule, steps: 9, warmup_steps: null } }, "schedule.warmup_steps", 0],
  [{ ...wsd, schedule: { ...wsd.schedule, steps: 12, decay_steps: null, warmup_steps: null } }, "schedule.decay_steps", 3],
  [spec, "resources.max_attempts", undefined],
])("computes the value of an empty field (%#)", (given, path, value) => {
  expect(automaticValue(given, path)).toBe(value);
});
