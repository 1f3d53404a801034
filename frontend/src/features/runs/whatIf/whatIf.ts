import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import type { GpuModel, Run, WhatIf } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";
import { bytes } from "@/lib/format";

/** Hardware to plan for. No node has to have it. */
export interface Hardware {
  gpu: string;
  /** GPUs per node. */
  gpus: number;
  nodes: number;
}

export const GPU_COUNTS: readonly number[] = [1, 2, 4, 8];
export const NODE_COUNTS: readonly number[] = [1, 2, 4, 8, 16, 32];

/** The plan of a spec on other hardware. */
export function whatIfQuery(team: string, spec: SpecJson, { gpu, gpus, nodes }: Hardware, startStep: number) {
  const moved = { ...spec, resources: { ...sectionOf(spec["resources"]), device: "cuda", nodes, slots_per_node: gpus } };
  return queryOptions({
    queryKey: ["whatIf", team, moved, gpu, startStep],
    queryFn: async ({ signal }): Promise<WhatIf> =>
      body(
        await api.POST("/api/v1/teams/{team}/runs/what-if", {
          params: { path: { team }, query: { gpu, begin_step: startStep } },
          body: moved as unknown as Run["spec"],
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: 60_000,
    gcTime: 60_000,
  });
}

function sectionOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

/** A GPU's short name with its memory: `H100 80GB HBM3, 79.6 GiB`. */
export function gpuLabel({ name, memory_bytes: memory }: GpuModel): string {
  return `${name.replace(/^NVIDIA (GeForce )?/, "")}, ${bytes(memory)}`;
}

/** The hardware of an answer. While a new answer loads, this is still the previous choice. */
export function hardwareText({ gpu, slots_per_node: gpus, nodes }: Pick<WhatIf, "gpu" | "slots_per_node" | "nodes">): string {
  const short = gpu.name.replace(/^NVIDIA (GeForce )?/, "");
  return `${short} × ${String(gpus)}${nodes > 1 ? ` on each of ${String(nodes)} nodes` : ""}`;
}
