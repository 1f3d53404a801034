import { fireEvent, screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it, vi } from "vitest";
import type { Fp8Recipe, Run } from "@/api/types";
import { Fp8Panel } from "@/features/fp8/Fp8Panel";
import type { TensorSearch } from "@/features/fp8/tensorSearch";
import { SummaryTiles } from "@/features/metrics/summary/SummaryTiles";
import type { Columns } from "@/lib/charts/series";
import type { StepWindow } from "@/lib/charts/stepWindow";
import type { TensorChoice } from "@/features/fp8/tensors";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const KINDS = ["weight", "gradient", "input", "output_gradient"];
const NAMES = [0, 1].flatMap((layer) =>
  ["attention.query", "feed_forward.down"].flatMap((part) => KINDS.map((kind) => `fp8_amax/layers.${layer}.${part}.weight:${kind}`)),
);
const MEASURED: Columns = {
  fp8_saturated: { steps: [1, 10], values: [0, 0] },
  fp8_underflow: { steps: [1, 10], values: [0, 2e-4] },
  fp8_lost_updates: { steps: [1, 10], values: [0, 0.02] },
  fp8_smallest_headroom: { steps: [1, 10], values: [1, 0.5] },
  skipped_steps: { steps: [1, 2, 10], values: [0, 1, 1] },
};

let asked: string[] = [];
let bounds: (string | null)[] = [];

beforeEach(() => {
  asked = [];
  server.use(
    http.get("*/metrics/names", () => HttpResponse.json(NAMES)),
    http.get("*/metrics", ({ request }) => {
      const names = new URL(request.url).searchParams.getAll("names");
      asked.push(...names);
      bounds = ["after_step", "to_step"].map((name) => new URL(request.url).searchParams.get(name));
      const [before = "", behind = ""] = (names[0] ?? "").split("*");
      const found = NAMES.flatMap((name) => [name, name.replace("fp8_amax", "fp8_scale")]).filter(
        (name) => name === names[0] || (name.startsWith(before) && behind !== "" && name.endsWith(behind)),
      );
      const series = found.map((name) => ({
        name,
        unit: "",
        steps: [1, 10],
        values: name.startsWith("fp8_scale") ? [0.5, 0.25] : [1, name.includes("layers.1.") ? 6 : 3],
      }));
      return HttpResponse.json({ series, attempts: [], cursor: "1:1" });
    }),
  );
});

function fp8Run(change: Partial<Run> = {}, recipe: Partial<Fp8Recipe> = {}): Run {
  const run = aRun(change);
  const fp8 = {
    level: "O2",
    scaling: "tensor",
    amax: "current",
    bf16_first_layers: 0,
    bf16_last_layers: 0,
    accumulation: "bf16",
    moments: "paper",
    optimizer_in_backward: false,
    skip_limit: 3,
    observe_every_steps: 10,
    ...recipe,
  } as const;
  return { ...run, spec: { ...run.spec, precision: { kind: "fp8", fp8, compile: "auto" } } };
}

function show(run: Run, columns: Columns, onChoose: (choice: TensorChoice) => void = () => undefined, wish: TensorSearch = {}, window: StepWindow | null = null) {
  renderRoute(
    <Fp8Panel
      team="lab"
      run={run}
      columns={columns}
      shown={{ columns, isPlaceholder: false }}
      markers={[]}
      zoom={{ range: null, label: "the full run", onSelect: () => undefined, onMove: () => undefined }}
      zoomBar={null}
      window={window}
      tensorSearch={wish}
      onChoose={onChoose}
    />,
  );
}

it("shows when the first measurements arrive", async () => {
  show(fp8Run(), {});
  expect(await screen.findByText("Measured at step 1 and then every 10 steps; the first values appear after step 1.")).toBeDefined();
  expect(asked).toEqual([]);
});

it("shows that the run does not train in FP8", async () => {
  show(aRun(), MEASURED);
  expect(await screen.findByText("This run does not train in FP8.")).toBeDefined();
});

it("shows the last values, what is normal, and what to do otherwise", async () => {
  show(fp8Run(), MEASURED);
  expect(await screen.findByText("last: clamped 0 %, underflow 0.02 %")).toBeDefined();
  expect(screen.getByText("last 2 %")).toBeDefined();
  expect(screen.getByText("last 1/2")).toBeDefined();
  expect(screen.getAllByText("Normal.")).toHaveLength(4);
  expect(screen.getByText(/A few are harmless/)).toBeDefined();
});

it.each([
  [[0, 9, 9], "A few are harmless."],
  [[0, 9, 14], "Gradients were not finite in 5 of the last 1,000 steps."],
])("judges only the steps that were skipped recently (%#)", async (values, words) => {
  show(fp8Run(), { ...MEASURED, skipped_steps: { steps: [1, 1_000, 2_000], values } });
  expect(await screen.findByText(new RegExp(words))).toBeDefined();
});

it("requests only visible tensors: one part in all layers, and one scale", async () => {
  show(fp8Run({ state: "succeeded" }), MEASURED, undefined, { kind: "gradient", part: "feed_forward.down", layer: 1 });
  expect(await screen.findByText("step 10: largest 6.000 in layer 1")).toBeDefined();
  expect(await screen.findByText("last 2⁻² (0.250)")).toBeDefined();
  expect(asked.sort()).toEqual([
    "fp8_amax/layers.*.feed_forward.down.weight:gradient",
    "fp8_scale/layers.1.feed_forward.down.weight:gradient",
  ]);
});

it("requests the steps that the charts show", async () => {
  show(fp8Run({ state: "succeeded" }), MEASURED, undefined, {}, { from: 5, to: 10 });
  expect(await screen.findByText("step 10: largest 6.000 in layer 1")).toBeDefined();
  expect(bounds).toEqual(["4", "10"]);
});

it("adapts to the run's FP8 settings: float32 weights at O1, a tensor scale in addition to row scales", async () => {
  show(fp8Run({ state: "succeeded" }, { level: "O1", scaling: "row" }), MEASURED);
  expect(await screen.findByText("At O1 weights are float32, so no update is lost.")).toBeDefined();
  expect(screen.queryByText(/stochastically/)).toBeNull();
  expect(await screen.findByText(/The scale of the entire tensor's amax; with row scaling, each row has its own/)).toBeDefined();
  expect(screen.queryByText(/use row scaling/)).toBeNull();
});

it.each([
  ["current", /Clamped: none, because each scale fits/],
  ["delayed", /Clamped: the share of FP8 layers' inputs and output gradients whose scale, which fits the last 16 steps, was too small/],
] as const)("explains clamping for a run with %s amax", async (amax, pattern) => {
  show(fp8Run({ state: "succeeded" }, { amax }), MEASURED);
  expect(await screen.findByText(pattern)).toBeDefined();
  expect(screen.getByText(new RegExp(`with ${amax} amax; underflow`))).toBeDefined();
  expect(screen.queryAllByText(/delayed/)).toHaveLength(amax === "delayed" ? 2 : 0);
});

it("suggests row scaling for a run with one scale per tensor", async () => {
  show(fp8Run({ state: "succeeded" }), MEASURED);
  expect(await screen.findByText(/use row scaling, or clip at a smaller norm/)).toBeDefined();
});

it("is readable with arrow keys, and Enter selects the layer", async () => {
  const choose = vi.fn();
  show(fp8Run({ state: "succeeded" }), MEASURED, choose);
  const map = await screen.findByRole("slider", { name: /amax by layer/ });
  expect(map.getAttribute("aria-valuetext")).toBe("layer 0, step 10: 3.000");
  fireEvent.keyDown(map, { key: "ArrowDown" });
  expect(map.getAttribute("aria-valuetext")).toBe("layer 1, step 10: 6.000");
  fireEvent.keyDown(map, { key: "ArrowDown" });
  fireEvent.keyDown(map, { key: "ArrowLeft" });
  expect(map.getAttribute("aria-valuetext")).toBe("layer 1, step 1: 1.000");
  fireEvent.keyDown(map, { key: "Enter" });
  expect(choose).toHaveBeenCalledWith({ kind: "input", part: "attention.query", layer: 1 });
});

it("shows an error if tensors cannot be loaded, and retries", async () => {
  server.use(http.get("*/metrics/names", () => HttpResponse.json({ detail: "Not now.", code: "busy" }, { status: 500 })));
  show(fp8Run({ state: "succeeded" }), MEASURED);
  const again = await screen.findByRole("button", { name: "Try again" });
  server.use(http.get("*/metrics/names", () => HttpResponse.json(NAMES)));
  fireEvent.click(again);
  expect(await screen.findByText("step 10: largest 6.000 in layer 1")).toBeDefined();
});

it("names only the BF16 peak if FP8 matmuls are no faster", async () => {
  const summary = {
    ...aRun().summary,
    values: { loss: 3, mfu: 0.41, bf16_mfu: 0.41 },
    peak_name: "FP8 measured peak 0.2 TFLOP/s of 2 cores",
    bf16_peak_name: "BF16 measured peak 0.2 TFLOP/s of 2 cores",
  };
  renderRoute(<SummaryTiles run={fp8Run({ summary })} columns={{}} />);
  expect(await screen.findByText("of BF16 peak 0.2 TFLOP/s")).toBeDefined();
  expect(screen.getByTitle("of BF16 measured peak 0.2 TFLOP/s of 2 cores")).toBeDefined();
  expect(screen.queryByText(/FP8|41.0 % of/)).toBeNull();
});

it("names both peaks next to MFU", async () => {
  const summary = {
    ...aRun().summary,
    values: { loss: 3, mfu: 0.41, bf16_mfu: 0.82 },
    peak_name: "FP8 peak 1,979 TFLOP/s of NVIDIA H200",
    bf16_peak_name: "BF16 peak 989 TFLOP/s of NVIDIA H200",
  };
  renderRoute(<SummaryTiles run={fp8Run({ summary })} columns={{}} />);
  await waitFor(() => {
    expect(screen.getByText("of FP8 peak 1,979 TFLOP/s")).toBeDefined();
  });
  expect(screen.getByText(/^82.0 % of BF16 peak/)).toBeDefined();
  expect(screen.getByTitle("of FP8 peak 1,979 TFLOP/s of NVIDIA H200; of BF16 peak 989 TFLOP/s of NVIDIA H200")).toBeDefined();
});
