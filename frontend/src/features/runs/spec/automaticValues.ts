import type { Run } from "@/api/types";

/** The value that the platform uses for an empty field, if it follows from the rest of the spec. */
export function automaticValue({ data, model, parallelism, resources, schedule }: Run["spec"], path: string): number | undefined {
  switch (path) {
    case "data.tokenizer.vocabulary":
      return data.tokenizer.kind === "bytes" ? 257 : 4_096;
    case "model.head_size":
      return model.width / model.heads;
    case "model.kv_heads":
      return model.heads;
    case "model.feed_forward":
      return Math.ceil(((model.activation === "gelu" ? 12 : 8) * model.width) / (3 * 32)) * 32;
    case "schedule.warmup_steps":
      return automaticWarmupSteps(schedule);
    case "schedule.decay_steps":
      return schedule.kind === "wsd"
        ? Math.min(Math.ceil(schedule.steps / 5), schedule.steps - (schedule.warmup_steps ?? automaticWarmupSteps(schedule)))
        : undefined;
    case "parallelism.data":
      return (resources.nodes * resources.slots_per_node) / (parallelism.tensor * parallelism.pipeline);
    default:
      return undefined;
  }
}

function automaticWarmupSteps({ steps }: Run["spec"]["schedule"]): number {
  return Math.min(Math.floor(steps / 10), 50);
}
