import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { SummaryTiles } from "@/features/metrics/summary/SummaryTiles";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

it("shows that the peak is not known instead of a fraction of a wrong one", async () => {
  const reason = "peak not known: the run was faster than the BF16 measured peak 3 GFLOP/s of a CPU";
  const summary = { ...aRun().summary, values: { loss: 3 }, peak_name: "BF16 measured peak 3 GFLOP/s of a CPU", mfu_unknown: reason };
  const stale = { mfu: { steps: [1], values: [0.9], total: 1 } };
  renderRoute(<SummaryTiles run={aRun({ summary })} columns={stale} />);
  const tile = (await screen.findByText("MFU")).parentElement;
  expect(tile?.textContent).toBe("MFU–peak not known");
  expect(screen.getByTitle(reason)).toBeDefined();
});
