import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Run } from "@/api/types";
import { Tiles } from "@/features/metrics/Tiles";
import { renderRoute } from "../renderRoute";
import { aRun } from "../runs";

const FLOPS = 2 * 86_400e15;

/** What the tile says; it asks the API for nothing, whose answer no test gives. */
async function told(change: Partial<Run>, step: number): Promise<string | null | undefined> {
  const run = aRun({ flops: FLOPS, ...change });
  renderRoute(<Tiles run={{ ...run, summary: { ...run.summary, step } }} columns={{}} />);
  return (await screen.findByText("compute so far")).parentElement?.textContent;
}

it("tells the share of the run's FLOPs that its steps are", async () => {
  expect(await told({}, 1_250)).toBe("compute so far0.5petaFLOP/s-daysof 2; model FLOPs");
});

it("leaves out what a fork's parent computed", async () => {
  const origin = { run: "run_0", name: "pilot-6", step: 4_900 };
  expect(await told({ forked_from: origin }, 4_975)).toBe("compute so far1.5petaFLOP/s-daysof 2; model FLOPs");
});

it("is nothing while a fork waits", async () => {
  const origin = { run: "run_0", name: "pilot-6", step: 4_900 };
  expect(await told({ forked_from: origin, state: "queued" }, 0)).toBe("compute so far0petaFLOP/s-daysof 2; model FLOPs");
});
