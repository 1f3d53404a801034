/** The slots of a node one by one, with what occupies each. */
import type { Node, NodeRun } from "@/api/types";

export interface Slot {
  device: string;
  index: number;
  run: NodeRun | null;
}

export function slotsOf({ slots, runs }: Pick<Node, "slots" | "runs">): Slot[] {
  return Object.entries(slots).flatMap(([device, many]) =>
    Array.from({ length: many }, (_, index): Slot => ({ device, index, run: holder(runs, device, index) })),
  );
}

function holder(runs: readonly NodeRun[], device: string, index: number): NodeRun | null {
  return runs.find((run) => run.device === device && run.slots.includes(index)) ?? null;
}

/** `GPU 3`, `CPU slot 1`: counted from 0, as drivers do. */
export function slotWords({ device, index }: Slot): string {
  return device === "cuda" ? `GPU ${index}` : `CPU slot ${index}`;
}
