import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { SummaryTiles } from "@/features/metrics/summary/SummaryTiles";
import type { Columns } from "@/lib/charts/series";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";

it("shows the speed of recent steps rather than that of the last one", async () => {
  const columns = { seconds: { steps: [1, 2], values: [0.5, 0.251] }, tokens_per_second: { steps: [1, 2], values: [1_000, 1_992] } };
  const summary = { ...aRun().summary, values: { seconds: 0.351, tokens_per_second: 1_424 } };
  renderRoute(<SummaryTiles run={aRun({ summary })} columns={columns} />);
  const tile = (await screen.findByText("throughput")).parentElement;
  expect(tile?.textContent).toBe("throughput1,424tokens/s351 ms per stepmean of about 20 steps");
});

it.each([
  ["the steps so far, while there are few", { step: 12 }, "of BF16 peak 989 TFLOP/smean of 12 steps"],
  ["about twenty steps", { step: 1_200 }, "of BF16 peak 989 TFLOP/smean of about 20 steps"],
  ["none, if the server kept the last step's value, as older versions did", { step: 12, values: { loss: 3, mfu: 0.3821 } }, "of BF16 peak 989 TFLOP/s"],
  ["none, while the server has no mean", { step: 12, values: { loss: 3 } }, "of BF16 peak 989 TFLOP/s"],
])("says that the MFU is a mean of %s", async (_, summary, note) => {
  renderRoute(<SummaryTiles run={aRun({ summary: { ...aRun().summary, ...summary } })} columns={{ mfu: { steps: [12], values: [0.3821] } }} />);
  const tile = (await screen.findByText("MFU")).parentElement;
  expect(tile?.textContent).toBe(`MFU38.2%${note}`);
  expect(screen.getByTitle("of BF16 peak 989 TFLOP/s of NVIDIA H200")).toBeDefined();
});

it.each([
  [[8.3, 25, 24, 23, 20.756], "validation 20.756, best 8.300 at step 1"],
  [[9, 8, 7, 6], "validation 6.000, falling"],
  [[6, 6.1, 6.2, 6.25], "validation 6.250, rising"],
  [[9, 6], "validation 6.000"],
])("describes the validation losses %j as %s", async (values, note) => {
  const columns = { validation_loss: { steps: values.map((_, index) => index + 1), values } };
  renderRoute(<SummaryTiles run={aRun()} columns={columns} />);
  expect(await screen.findByText(note)).toBeDefined();
});

/** The text of a tile, with the words that only screen readers read. */
async function tileText(name: string, columns: Columns): Promise<string> {
  const page = renderRoute(<SummaryTiles run={aRun()} columns={columns} />);
  const text = (await screen.findByText(name)).parentElement?.textContent ?? "";
  page.unmount();
  return text;
}

it("warns of a validation loss clearly above the best, and names the step of the best", async () => {
  const validation = (...values: number[]) => ({ validation_loss: { steps: values.map((_, index) => 650 * (index + 1)), values } });
  expect(await tileText("loss", validation(0.2, 0.174, 0.386))).toContain("warning: validation 0.386, best 0.174 at step 1,300");
  expect(await tileText("loss", validation(0.2, 0.174, 0.18))).not.toContain("warning");
});

it("warns if more than half of the steps are clipped", async () => {
  const limit = aRun().spec.optimizer.clip_norm ?? 0;
  expect(limit).toBeGreaterThan(0);
  const norms = (...times: number[]) => ({ grad_norm: { steps: times.map((_, index) => index + 1), values: times.map((time) => time * limit) } });
  expect(await tileText("grad norm", norms(2, 2, 0.5))).toContain("warning: clipped 67 % of steps");
  const rarely = await tileText("grad norm", norms(2, 0.5));
  expect(rarely).toContain("clipped 50 % of steps");
  expect(rarely).not.toContain("warning");
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
