import { expect, it } from "vitest";
import { stateLook } from "@/lib/stateLook";

it("says each state in its word, and no two words share a shape", () => {
  const words = Object.fromEntries(Object.entries(stateLook).map(([state, { word }]) => [state, word]));
  expect(words).toEqual({
    queued: "Waiting",
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
  const shapes = new Map(Object.values(stateLook).map(({ shape, word }) => [shape, word]));
  expect(shapes.size).toBe(new Set(Object.values(words)).size);
});
