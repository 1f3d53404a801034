import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Run } from "@/api/types";
import { SummaryTiles } from "@/features/metrics/summary/SummaryTiles";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

const FLOPS = 2 * 86_400e15;

/** The text of the tile. It sends no requests to the API. */
async function computeText(change: Partial<Run>, step: number): Promise<string | null | undefined> {
  const run = aRun({ flops: FLOPS, ...change });
  renderRoute(<SummaryTiles run={{ ...run, summary: { ...run.summary, step } }} columns={{}} />);
  return (await screen.findByText(/^compute/)).parentElement?.textContent;
}

it("shows the FLOPs of the completed steps", async () => {
  expect(await computeText({}, 1_250)).toBe("compute so far0.5petaFLOP/s-daysof 2 petaFLOP/s-days");
});

it("excludes the FLOPs of a fork's parent", async () => {
  const origin = { run: "run_0", name: "pilot-6", step: 4_900 };
  expect(await computeText({ forked_from: origin }, 4_975)).toBe("compute so far1.5petaFLOP/s-daysof 2 petaFLOP/s-days");
});

it("is zero while a fork waits", async () => {
  const origin = { run: "run_0", name: "pilot-6", step: 4_900 };
  expect(await computeText({ forked_from: origin, state: "queued" }, 0)).toBe("compute so far0petaFLOP/s-daysof 2 petaFLOP/s-days");
});

it("does not repeat the FLOPs of a complete run", async () => {
  expect(await computeText({ state: "succeeded" }, 5_000)).toBe("compute2petaFLOP/s-days");
});

it("says how much of its FLOPs an ended run used", async () => {
  expect(await computeText({ state: "cancelled" }, 1_250)).toBe("compute0.5petaFLOP/s-daysof 2 petaFLOP/s-days");
});

it("counts a small run in FLOP, because its petaFLOP/s-days are unreadable", async () => {
  expect(await computeText({ flops: 3.7e14 }, 2_500)).toBe("compute so far185TFLOPof 370 TFLOP");
});

it("calls a validation loss rising or falling only after four measurements in one direction", async () => {
  const note = async (...values: number[]) => {
    const columns = { loss: { steps: [1], values: [9] }, validation_loss: { steps: values.map((_, index) => index), values } };
    const page = renderRoute(<SummaryTiles run={aRun()} columns={columns} />);
    const text = (await screen.findByText(/^validation/)).textContent;
    page.unmount();
    return text;
  };
  expect(await note(2.0, 2.05)).toBe("validation 2.050");
  expect(await note(2.0, 2.05, 2.02, 2.06)).toBe("validation 2.060");
  expect(await note(2.0, 2.02, 2.04, 2.06)).toBe("validation 2.060, rising");
  expect(await note(3.0, 2.1, 2.0, 1.9)).toBe("validation 1.900, falling");
});
