import type { Run } from "@/api/types";

const SPEC: Run["spec"] = {
  schema_version: 1,
  name: "pilot-7",
  seed: 0,
  data: { dataset: "ds_1", version: 1, tokenizer: { kind: "bpe", vocabulary: null }, validation_fraction: 0.01 },
  model: {
    layers: 2,
    width: 64,
    heads: 4,
    kv_heads: 2,
    head_size: null,
    feed_forward: null,
    rope_theta: 10_000,
    norm_epsilon: 1e-5,
    tied_embeddings: true,
    initializer_std: 0.02,
  },
  batch: { sequence_tokens: 64, micro_sequences: 4, global_sequences: 8 },
  optimizer: {
    kind: "adamw",
    learning_rate: 1e-3,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    weight_decay: 0.1,
    clip_norm: 1,
  },
  schedule: { kind: "cosine", steps: 5_000, warmup_steps: 50, final_fraction: 0.1, decay_steps: null },
  validation: { every_steps: 100, sequences: 64 },
  precision: { kind: "bf16", fp8: null, compile: "auto" },
  memory: { recompute: "none", loss_chunk_tokens: 4_096 },
  parallelism: { data: null, tensor: 1, pipeline: 1, context: 1 },
  checkpoint: { every_steps: 200, keep: 2, export_dtype: "fp32" },
  resources: { device: "auto", nodes: 1, slots_per_node: 1, max_attempts: null },
};

/** A run as the API shows it, with what a test cares about. */
export function aRun(change: Partial<Run> = {}): Run {
  return {
    id: "run_1",
    name: "pilot-7",
    state: "running",
    verdict: null,
    sentence: "step 1,200 of 5,000, 1 h 15 min left",
    reason: null,
    suspect_seconds: null,
    spec: SPEC,
    attempt: 1,
    summary: {
      step: 1_200,
      attempt: 1,
      values: { loss: 3.124, mfu: 0.382, tokens_per_second: 441_037, eta_seconds: 4_500 },
      spark: [9, 5, 3.1],
      peak_name: "BF16 peak 989 TFLOP/s of NVIDIA H200",
    },
    created: "2026-11-21T13:00:00Z",
    created_by: "ana",
    started: "2026-11-21T13:01:00Z",
    ended: null,
    retry_at: null,
    nodes: ["node-a"],
    ...change,
  };
}
