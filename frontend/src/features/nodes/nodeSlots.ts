/** The slots of a node, and the run on each. */
import type { GpuUse, Node, NodeRun } from "@/api/types";
import { bytes, count, percent } from "@/lib/format";

export interface Slot {
  device: string;
  index: number;
  run: NodeRun | null;
}

export function slotsOf({ slots, runs }: Pick<Node, "slots" | "runs">): Slot[] {
  return Object.entries(slots).flatMap(([device, many]) =>
    Array.from({ length: many }, (_, index): Slot => ({ device, index, run: runOnSlot(runs, device, index) })),
  );
}

function runOnSlot(runs: readonly NodeRun[], device: string, index: number): NodeRun | null {
  return runs.find((run) => run.device === device && run.slots.includes(index)) ?? null;
}

/** `GPU 3`, `CPU slot 1`: numbered from 0, as drivers do. */
export function slotLabel({ device, index }: Slot): string {
  return device === "cuda" ? `GPU ${index}` : `CPU slot ${index}`;
}

/** `98.0 %, 31.4 GiB, 412 W, 61 °C`: what the driver reports. */
export function gpuUseText({ utilization, memory_bytes: memory, power_watts: power, temperature_celsius: temperature }: GpuUse): string {
  return [
    typeof utilization === "number" ? `${percent(utilization)} %` : [],
    typeof memory === "number" ? bytes(memory) : [],
    typeof power === "number" ? `${count(power)} W` : [],
    typeof temperature === "number" ? `${count(temperature)} °C` : [],
  ]
    .flat()
    .join(", ");
}
