import { fireEvent, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import type { Dataset, Run, Tokenizer } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { RunForm } from "@/features/runs/form/RunForm";
import type { SpecValues } from "@/features/runs/spec/specFields";
import { aDataset } from "@tests/support/datasets";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

export const DATASETS: Dataset[] = [aDataset({ created_by: null, versions: [] })];
const TOKENIZERS: Tokenizer[] = [
  { id: "tok_1", name: "gpt2", vocabulary: 50_257, end_of_text: "<|endoftext|>", digest: "aa", created: "2026-11-21T13:00:00Z", created_by: null },
];
const SCHEMA = {
  required: ["name", "data"],
  properties: {
    name: { type: "string", description: "The name of the run." },
    data: { $ref: "#/$defs/Data" },
    model: { $ref: "#/$defs/Model" },
    optimizer: { $ref: "#/$defs/Optimizer" },
    precision: { $ref: "#/$defs/Precision" },
  },
  $defs: {
    Optimizer: {
      properties: {
        clip_norm: {
          anyOf: [{ type: "number" }, { type: "null" }],
          default: 1,
          description: "Gradients are scaled down; no clipping when empty.",
        },
      },
    },
    Precision: {
      properties: {
        kind: { enum: ["bf16", "fp8"], type: "string", default: "bf16" },
        fp8: { anyOf: [{ $ref: "#/$defs/FP8" }, { type: "null" }], default: null },
      },
    },
    FP8: { properties: { skip_limit: { type: "integer", default: 3, description: "Steps in a row." } } },
    Data: { required: ["dataset"], properties: { dataset: { type: "string" }, tokenizer: { $ref: "#/$defs/Tokenizer" } } },
    Tokenizer: {
      properties: {
        kind: { enum: ["bpe", "bytes", "uploaded", "dataset"], type: "string", default: "bpe" },
        source: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
      },
    },
    Model: { properties: { layers: { type: "integer", default: 6 }, width: { type: "integer", default: 192, description: "Size of the residual stream." } } },
  },
};

export const GIB = 2 ** 30;
export const ESTIMATE = {
  parameters: 360_768,
  flops: 1.6e18,
  petaflop_days: 0.0185,
  memory_bytes: 1.9 * GIB,
  host_bytes: 0,
  checkpoint_bytes: GIB,
  stored_bytes: 3 * GIB,
  storage: { used_bytes: 39 * GIB, limit_bytes: 40 * GIB },
  team_checkpoint_bytes: 12 * GIB,
  measured: { run: "run_6", name: "pilot-6", node: "node-a", when: "2026-11-21T13:00:00Z", tokens_per_second: 441_037 },
  seconds: 5_940,
  seconds_at_peak: 1_800,
  slot_hours: 1.65,
};

export const PLAN = {
  memory: [{ rank: 0, total: 1.9 * GIB }],
  slot_bytes: 12 * GIB,
  slot_node: "node-a",
  too_large: null,
  warnings: [] as string[],
  what_decays: "Weight decay is for matrices.",
  learning_rates: "",
};

/** The time at the peak of widths that were not measured. */
const PEAK_SECONDS: Readonly<Record<number, number>> = { 32: 7_200, 328: 0.3 };

export const GPU = { name: "NVIDIA H100 80GB HBM3", memory_bytes: 80 * GIB, capability: "9.0", peaks: { bf16: 989e12 } };

/** The submissions that the server received. */
export const sent: { body: unknown; key: string | null }[] = [];

/** Serves what the form requests. */
export function serveRunForm(): void {
  sent.length = 0;
  sessionStorage.clear();
  server.use(
    http.get("*/api/v1/spec", () => HttpResponse.json({ run_spec: SCHEMA, presets: { nano: { layers: 6, width: 64 } }, preset_parameters: { nano: 360_768 }, preset_families: { nano: "Small models" }, gpus: [GPU] })),
    http.post("*/runs/validate", async ({ request }) => {
      const spec = (await request.json()) as { model?: { width?: number }; precision?: { fp8?: { skip_limit?: number } } };
      if ((spec.precision?.fp8?.skip_limit ?? 0) < 0) {
        const problem = { field: "precision.fp8.skip_limit", message: "Must be at least 0.", value: -1 };
        return HttpResponse.json({ valid: false, problems: [problem], spec: null, parameters: null });
      }
      if (spec.model?.width === 66) {
        const problem = { field: "precision.kind", message: "Not with 66.", value: "bf16" };
        return HttpResponse.json({ valid: false, problems: [problem], spec: null, parameters: null });
      }
      const odd = (spec.model?.width ?? 0) % 2 === 1;
      const problems = odd ? [{ field: "model.width", message: "Must be even.", value: 63 }] : [];
      return HttpResponse.json({ valid: !odd, problems, spec: odd ? null : asStored(spec.model), parameters: odd ? null : 360_768, train_tokens: null, warnings: [] });
    }),
    http.get("*/api/v1/teams/lab/recipes", () => HttpResponse.json({ items: [] })),
    http.post("*/runs/plan", () => HttpResponse.json(PLAN)),
    http.post("*/runs/estimate", async ({ request }) => {
      const { model } = (await request.json()) as { model?: { width?: number } };
      return HttpResponse.json(model?.width === 64 ? ESTIMATE : { ...ESTIMATE, measured: null, seconds: null, seconds_at_peak: PEAK_SECONDS[model?.width ?? 0] ?? null, slot_hours: null });
    }),
    http.post("*/api/v1/teams/lab/runs", async ({ request }) => {
      sent.push({ body: await request.json(), key: request.headers.get("Idempotency-Key") });
      return HttpResponse.json(aRun(), { status: 201 });
    }),
  );
}

/** Shows the form of a new run. */
export function showRunForm(onCreated: (run: Run) => void = () => undefined, start: SpecValues = {}, beginStep = 0, takenNames: string[] = [], datasets = DATASETS) {
  return renderRoute(
    <AsyncBoundary>
      <RunForm
        team="lab"
        userId="ana"
        datasets={datasets}
        tokenizers={TOKENIZERS}
        prefill={start}
        startStep={beginStep}
        takenNames={takenNames}
        onCreated={onCreated}
      />
    </AsyncBoundary>,
  );
}

/** The settings of the data are collapsed. */
export const openData = async () => userEvent.click(await screen.findByRole("button", { name: /^Data settings/ }));

/** The model's fields are collapsed. */
export async function openModel() {
  await userEvent.click(await screen.findByRole("button", { name: /^Model settings/ }));
}

/** The numbers of the lines of the text that are marked as wrong. */
export function markedLines() {
  return [...document.querySelectorAll("li.bg-bad")].map(({ textContent }) => textContent);
}

export const name = () => screen.findByLabelText<HTMLInputElement>("Name");

export async function writeName(text: string) {
  await userEvent.clear(await name());
  await userEvent.type(await name(), text);
}

export const yamlText = () => screen.getByLabelText<HTMLTextAreaElement>("Configuration as YAML");

/** Typing would be slow, and the library treats `{` as a key. */
export function writeYaml(text: string) {
  fireEvent.change(yamlText(), { target: { value: text } });
}

/** A spec as the server returns it: what was written, with defaults for the rest. */
export function asStored(model: object = {}) {
  const { spec } = aRun();
  return { ...spec, model: { ...spec.model, ...model } };
}
