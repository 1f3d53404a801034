import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { RunPlan } from "@/api/types";
import { LayoutPlan } from "@/features/runs/parallelism/LayoutPlan";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const MEMORY = { copies: 0, gradients: 2 ** 20, optimizer: 2 ** 21, gathered: 0, loss: 0, transfers: 2 ** 10, snapshot: 0, host: 0 };
const PLAN: RunPlan = {
  pipeline: 2,
  data: 1,
  shard: 1,
  tensor: 2,
  stages_per_rank: 1,
  schedule: "1f1b",
  micro_batches: 2,
  ranks: [0, 1, 2, 3].map((rank) => ({ rank, pipeline: Math.floor(rank / 2), data: 0, tensor: rank % 2 })),
  stages: [
    { stage: 0, rank: 0, first_layer: 0, layers: 3, embedding: true, loss: false },
    { stage: 1, rank: 1, first_layer: 3, layers: 1, embedding: false, loss: true },
  ],
  stages_are_measured: true,
  memory: [
    { rank: 0, total: 4 * 2 ** 20, weights: 2 ** 20, activations: 2 ** 10, ...MEMORY },
    { rank: 1, total: 2 * 2 ** 20, weights: 2 ** 19, activations: 0, ...MEMORY },
  ],
  slot_bytes: null,
  slot_node: null,
  warnings: [],
  export_loaded_by: "transformers loads the export as LlamaForCausalLM.",
  what_decays: "Weight decay 0.1 is for 90 of 100 weights: matrices, and neither norms nor biases.",
  learning_rates: "The learning rate at the peak is 0.002 for 10 weights of embeddings, 0.001 for 90 weights of matrices in blocks.",
  timeline: [
    [
      { kind: "F", stage: 0, micro_batch: 0, start: 0, end: 1 },
      { kind: "F", stage: 0, micro_batch: 1, start: 1, end: 2 },
      { kind: "B", stage: 0, micro_batch: 0, start: 4, end: 6 },
    ],
    [
      { kind: "F", stage: 1, micro_batch: 0, start: 1, end: 2 },
      { kind: "B", stage: 1, micro_batch: 0, start: 2, end: 4 },
    ],
  ],
  host_bytes: 0,
  bubble_fraction: 0.25,
};

function show(spec: Record<string, unknown> = { name: "pilot" }) {
  renderRoute(<LayoutPlan team="lab" spec={spec} />);
}

it("shows ranks, memory and the pipeline schedule as diagrams, text and tables", async () => {
  const asked: unknown[] = [];
  server.use(
    http.post("*/api/v1/teams/lab/runs/plan", async ({ request }) => {
      asked.push(await request.json());
      return HttpResponse.json(PLAN);
    }),
  );
  show({ name: "pilot", parallelism: { pipeline: 2, tensor: 2 } });
  const layout = await screen.findByRole("region", { name: "Layout" });
  expect(asked).toEqual([{ name: "pilot", parallelism: { pipeline: 2, tensor: 2 } }]);
  expect(layout.textContent).toContain("4 ranks = pipeline 2 × data 1 × tensor 2");
  expect(screen.getByText("pipeline rank 0: layers 0–2, embedding")).toBeDefined();
  expect(screen.getByText("pipeline rank 1: layer 3, loss")).toBeDefined();
  expect(layout.textContent).toContain("Ranks are idle 25.0 % of the time");
  expect(layout.textContent).toContain("Stages are chosen when the run starts");
  expect(layout.textContent).toContain("transformers loads the export as LlamaForCausalLM.");
  expect(screen.getByRole("img", { name: "Timeline of 2 pipeline ranks" }).querySelectorAll("title")).toHaveLength(5);
  expect(screen.queryByText("gathered")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Schedule as a table" }));
  const table = within(screen.getByRole("region", { name: "Pipeline schedule" }));
  expect(table.getByText("F0.0 F0.1 B0.0")).toBeDefined();
});

it("shows no timeline without a pipeline", async () => {
  server.use(
    http.post("*/runs/plan", () => HttpResponse.json({ ...PLAN, pipeline: 1, memory: PLAN.memory.slice(0, 1), stages: PLAN.stages.slice(0, 1) })),
  );
  show();
  await screen.findByRole("region", { name: "Layout" });
  expect(screen.queryByRole("img")).toBeNull();
  expect(screen.getByText("3 layers, embedding")).toBeDefined();
});

it("shows why there is no layout yet", async () => {
  const problem = { field: "parallelism.tensor", message: "3 does not divide model.heads 4.", value: 3 };
  server.use(http.post("*/runs/plan", () => HttpResponse.json({ title: "x", detail: "y", code: "invalid", errors: [problem] }, { status: 422 })));
  show();
  expect(await screen.findByText(/No layout to show yet. 3 does not divide model.heads 4./)).toBeDefined();
});

it("compares memory with the slot's, and warns of a rank that needs more", async () => {
  const over = { slot_bytes: 3 * 2 ** 20, slot_node: "node-1", warnings: ["Pipeline rank 0 needs more than node-1 has."] };
  server.use(http.post("*/runs/plan", () => HttpResponse.json({ ...PLAN, ...over })));
  show();
  const layout = await screen.findByRole("region", { name: "Layout" });
  expect(layout.textContent).toContain("4 MiB of 3 MiB");
  expect(screen.getByText("Pipeline rank 0 needs more than node-1 has.")).toBeDefined();
});
