import { expect, it } from "vitest";
import type { NodeRun } from "@/api/types";
import { slotsOf, slotLabel } from "@/features/nodes/nodeSlots";

const run = (change: Partial<NodeRun>): NodeRun => ({ team: "lab", run: "run_1", name: "pilot", device: "cuda", slots: [0], state: "running", ...change });

it("assigns each slot to its run by device and number", () => {
  const slots = slotsOf({ slots: { cuda: 3, cpu: 1 }, runs: [run({ slots: [0, 2] }), run({ run: "run_2", device: "cpu" })] });
  expect(slots.map((slot) => [slotLabel(slot), slot.run?.run])).toEqual([
    ["GPU 0", "run_1"],
    ["GPU 1", undefined],
    ["GPU 2", "run_1"],
    ["CPU slot 0", "run_2"],
  ]);
});
