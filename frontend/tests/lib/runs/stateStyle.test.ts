import { expect, it } from "vitest";
import { stateStyle } from "@/lib/runs/stateStyle";

it("labels each state, and gives each label its own icon", () => {
  const words = Object.fromEntries(Object.entries(stateStyle).map(([state, { label }]) => [state, label]));
  expect(words).toEqual({
    queued: "Queued",
    leased: "Starting",
    starting: "Starting",
    running: "Running",
    completing: "Finishing",
    stopping: "Stopping",
    retry_wait: "Recovering",
    paused: "Paused",
    succeeded: "Done",
    failed: "Failed",
    cancelled: "Cancelled",
  });
  const shapes = new Map(Object.values(stateStyle).map(({ shape, label }) => [shape, label]));
  expect(shapes.size).toBe(new Set(Object.values(words)).size);
});
