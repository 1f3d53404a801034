import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { SummaryTiles } from "@/features/metrics/summary/SummaryTiles";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

it("says that the step time next to the throughput is that of the last step", async () => {
  const columns = { seconds: { steps: [1, 2], values: [0.5, 0.351] }, tokens_per_second: { steps: [1, 2], values: [1_000, 1_424] } };
  renderRoute(<SummaryTiles run={aRun()} columns={columns} />);
  expect(await screen.findByText("last step 351 ms")).toBeDefined();
});

it("shows that the peak is not known instead of a fraction of a wrong one", async () => {
  const reason = "peak not known: the run was faster than the BF16 measured peak 3 GFLOP/s of a CPU";
  const summary = { ...aRun().summary, values: { loss: 3 }, peak_name: "BF16 measured peak 3 GFLOP/s of a CPU", mfu_unknown: reason };
  const stale = { mfu: { steps: [1], values: [0.9], total: 1 } };
  renderRoute(<SummaryTiles run={aRun({ summary })} columns={stale} />);
  const tile = (await screen.findByText("MFU")).parentElement;
  expect(tile?.textContent).toBe("MFU–peak not known");
  expect(screen.getByTitle(reason)).toBeDefined();
});
