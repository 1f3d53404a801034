import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Run } from "@/api/types";
import { SummaryTiles } from "@/features/metrics/summary/SummaryTiles";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

const FLOPS = 2 * 86_400e15;

/** What the tile says; it asks the API for nothing, whose answer no test gives. */
async function computeText(change: Partial<Run>, step: number): Promise<string | null | undefined> {
  const run = aRun({ flops: FLOPS, ...change });
  renderRoute(<SummaryTiles run={{ ...run, summary: { ...run.summary, step } }} columns={{}} />);
  return (await screen.findByText("compute so far")).parentElement?.textContent;
}

it("shows the FLOPs of the completed steps", async () => {
  expect(await computeText({}, 1_250)).toBe("compute so far0.5petaFLOP/s-daysof 2; model FLOPs");
});

it("excludes the FLOPs of a fork's parent", async () => {
  const origin = { run: "run_0", name: "pilot-6", step: 4_900 };
  expect(await computeText({ forked_from: origin }, 4_975)).toBe("compute so far1.5petaFLOP/s-daysof 2; model FLOPs");
});

it("is zero while a fork waits", async () => {
  const origin = { run: "run_0", name: "pilot-6", step: 4_900 };
  expect(await computeText({ forked_from: origin, state: "queued" }, 0)).toBe("compute so far0petaFLOP/s-daysof 2; model FLOPs");
});
