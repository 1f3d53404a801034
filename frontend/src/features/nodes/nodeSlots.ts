/** The slots of a node, and the run on each. */
import type { Node, NodeRun } from "@/api/types";

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
