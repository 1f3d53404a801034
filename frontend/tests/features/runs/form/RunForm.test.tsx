import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it, vi } from "vitest";
import type { Dataset, Run, Tokenizer } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { storeDraft } from "@/features/runs/form/draft";
import { RunForm } from "@/features/runs/form/RunForm";
import type { SpecValues } from "@/features/runs/spec/specFields";
import { aDataset, aVersion } from "@tests/support/datasets";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const DATASETS: Dataset[] = [aDataset({ created_by: null, versions: [] })];
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

const GIB = 2 ** 30;
const ESTIMATE = {
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

const PLAN = {
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

const GPU = { name: "NVIDIA H100 80GB HBM3", memory_bytes: 80 * GIB, capability: "9.0", peaks: { bf16: 989e12 } };

let sent: { body: unknown; key: string | null }[] = [];

beforeEach(() => {
  sent = [];
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
});

function show(onCreated: (run: Run) => void = () => undefined, start: SpecValues = {}, beginStep = 0, takenNames: string[] = [], datasets = DATASETS) {
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

const openData = async () => userEvent.click(await screen.findByRole("button", { name: /^Data settings/ }));

/** The model's fields are collapsed. */
async function openModel() {
  await userEvent.click(await screen.findByRole("button", { name: /^Model settings/ }));
}

/** The numbers of the lines of the text that are marked as wrong. */
function markedLines() {
  return [...document.querySelectorAll("li.bg-bad")].map(({ textContent }) => textContent);
}

const name = () => screen.findByLabelText<HTMLInputElement>("Name");

async function writeName(text: string) {
  await userEvent.clear(await name());
  await userEvent.type(await name(), text);
}

it("shows API errors at the field and in the summary, and the size of a valid model", async () => {
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "63");
  expect(await screen.findByRole("link", { name: "Model: width" })).toBeDefined();
  expect(screen.getByLabelText("Width").getAttribute("aria-invalid")).toBe("true");
  await userEvent.click(screen.getByRole("radio", { name: /^nano/ }));
  expect(await within(screen.getByRole("region", { name: "Estimate" })).findByText("361 k")).toBeDefined();
  await waitFor(() => {
    expect(screen.queryByRole("link", { name: "Model: width" })).toBeNull();
  });
});

it("shows the problems of the check beside those of a refused submission", async () => {
  const refused = [{ field: "batch.global_sequences", message: "Must be a multiple of 72.", value: 16 }];
  server.use(http.post("*/api/v1/teams/lab/runs", () => HttpResponse.json({ status: 422, code: "invalid", detail: "Invalid.", errors: refused }, { status: 422 })));
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "63");
  await screen.findByRole("link", { name: "Model: width" });
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  expect(await screen.findByText("Must be a multiple of 72.")).toBeDefined();
  expect(screen.getByRole("link", { name: "Model: width" })).toBeDefined();
});

it("goes to the first problem when the run is started", async () => {
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "63");
  await screen.findByRole("link", { name: "Model: width" });
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  expect(document.activeElement).toBe(screen.getByLabelText("Width"));
  await openModel();
  expect(screen.queryByLabelText("Width")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  expect(document.activeElement).toBe(screen.getByLabelText("Width"));
  await userEvent.clear(await name());
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  expect(document.activeElement).toBe(await name());
});

it("goes to the field that the server refuses", async () => {
  const refused = [{ field: "precision.kind", message: "No node has it.", value: "bf16" }];
  server.use(http.post("*/api/v1/teams/lab/runs", () => HttpResponse.json({ status: 422, code: "invalid", detail: "Invalid.", errors: refused }, { status: 422 })));
  show();
  await name();
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await screen.findAllByText("No node has it.");
  expect(document.activeElement).toBe(screen.getByLabelText("Precision"));
});

it("shows errors of default values, but not of required fields that are still empty", async () => {
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "66");
  expect(await screen.findByRole("link", { name: "Precision" })).toBeDefined();
  expect(screen.queryByRole("link", { name: "Name" })).toBeNull();
});

it("does not submit without a name, then sends the filled fields with one idempotency key", async () => {
  const created = vi.fn();
  show(created);
  await userEvent.clear(await name());
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  expect(screen.getByRole("link", { name: "Name" })).toBeDefined();
  expect(sent).toEqual([]);
  await writeName("pilot");
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await waitFor(() => {
    expect(created).toHaveBeenCalledOnce();
  });
  expect(sent).toEqual([{ body: { name: "pilot", data: { dataset: "ds_1" } }, key: expect.stringMatching(/^[0-9a-f]{32}$/) as string }]);
});

it("suggests a unique name from data and preset until the user writes one", async () => {
  show(() => undefined, {}, 0, ["letters", "letters-nano", "letters-nano-2"]);
  expect((await name()).value).toBe("letters-2");
  await userEvent.click(screen.getByRole("radio", { name: /^nano/ }));
  expect((await name()).value).toBe("letters-nano-3");
  await userEvent.click(screen.getByLabelText("YAML"));
  expect(yamlText().value).toContain("name: letters-nano-3");
  await userEvent.click(screen.getByLabelText("form"));
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await waitFor(() => {
    expect(sent).toHaveLength(1);
  });
  expect(sent[0]?.body).toEqual({ name: "letters-nano-3", data: { dataset: "ds_1" }, model: { width: 64 } });
});

it("goes on proposing a name after a look at the YAML or a recipe, until the user changes it there", async () => {
  const recipes = [{ id: "rec_1", name: "night", spec: { model: { width: 96 } }, problems: [], saved: "2026-11-21T13:00:00Z", saved_by: "ana" }];
  server.use(http.get("*/api/v1/teams/lab/recipes", () => HttpResponse.json({ items: recipes })));
  show();
  await userEvent.click(await screen.findByLabelText("YAML"));
  write(yamlText().value.replace("dataset: ds_1", "dataset: ds_1 # all of it"));
  await userEvent.click(screen.getByLabelText("form"));
  await userEvent.selectOptions(await screen.findByLabelText("Recipe"), "night");
  await userEvent.click(screen.getByRole("radio", { name: /^nano/ }));
  expect((await name()).value).toBe("letters-nano");
  await userEvent.click(screen.getByLabelText("YAML"));
  expect(yamlText().value).toContain("name: letters-nano");
  write(yamlText().value.replace("letters-nano", "pilot"));
  await userEvent.click(screen.getByLabelText("form"));
  await userEvent.selectOptions(await screen.findByLabelText("Recipe"), "night");
  expect((await name()).value).toBe("pilot");
});

it("begins with the newest dataset that can be read", async () => {
  const failed = aDataset({ id: "ds_2", name: "broken", versions: [aVersion({ state: "failed" })] });
  show(undefined, {}, 0, [], [failed, ...DATASETS]);
  const dataset = await screen.findByLabelText<HTMLSelectElement>("Dataset");
  expect(dataset.value).toBe("ds_1");
  expect(within(dataset).queryByText("broken")).toBeNull();
});

it("warns of a validation split that is too short", async () => {
  const warnings = ["There will be no validation loss: the validation split has 9 tokens. Raise data.validation_fraction."];
  server.use(http.post("*/runs/validate", () => HttpResponse.json({ valid: true, problems: [], spec: asStored(), parameters: 1, train_tokens: 1_000_000, warnings })));
  show();
  const verdict = await screen.findByRole("status", { name: "Verdict" });
  await waitFor(() => {
    expect(verdict.textContent).toContain("There will be no validation loss");
  });
  expect(screen.getByText(/1 M training tokens with this tokenizer\.$/)).toBeDefined();
});

it("shows near the preset why it does not fit, and opens no section for it until the run is started", async () => {
  const message = "Too little memory: the rank that needs the most takes 1.9 GiB.";
  server.use(
    http.post("*/runs/validate", async ({ request }) => {
      const { model } = (await request.json()) as { model?: { width?: number } };
      const problems = model?.width === 64 ? [{ field: "optimizer.clip_norm", message, value: 1 }] : [];
      return HttpResponse.json({ valid: problems.length === 0, problems, spec: asStored(model), parameters: 1, train_tokens: null, warnings: [] });
    }),
    http.post("*/runs/plan", () => HttpResponse.json({ ...PLAN, slot_bytes: GIB, too_large: "No node has 1.9 GiB." })),
    http.post("*/api/v1/teams/lab/runs", () => HttpResponse.json({ status: 422, code: "invalid", detail: "Invalid.", errors: [{ field: "optimizer.clip_norm", message, value: 1 }] }, { status: 422 })),
  );
  show();
  await userEvent.click(await screen.findByRole("radio", { name: /^nano/ }));
  const optimizer = screen.getByRole("button", { name: /^Optimizer/ });
  await waitFor(() => {
    expect(optimizer.textContent).toContain("needs attention");
  });
  const model = screen.getByRole("heading", { name: "Model" }).closest("section") ?? document.body;
  expect((await within(model).findByText(message)).textContent).toBe(`${message} Optimizer: clip norm`);
  expect(optimizer.getAttribute("aria-expanded")).toBe("false");
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  expect(optimizer.getAttribute("aria-expanded")).toBe("true");
  expect(document.activeElement).toBe(screen.getByLabelText("Clip norm"));
  await userEvent.click(optimizer);
  await userEvent.type(await name(), "2");
  expect(optimizer.getAttribute("aria-expanded")).toBe("false");
});

it("opens the section of the field that the server refuses", async () => {
  const refused = [{ field: "optimizer.clip_norm", message: "No node has it.", value: 1 }];
  server.use(http.post("*/api/v1/teams/lab/runs", () => HttpResponse.json({ status: 422, code: "invalid", detail: "Invalid.", errors: refused }, { status: 422 })));
  show();
  await name();
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await screen.findAllByText("No node has it.");
  expect(document.activeElement).toBe(screen.getByLabelText("Clip norm"));
});

it("counts the changed values of collapsed sections, and marks those with a problem", async () => {
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Layers"), "6");
  await userEvent.type(screen.getByLabelText("Width"), "63");
  expect(await screen.findByText("needs attention")).toBeDefined();
  expect(screen.getByText("1 changed")).toBeDefined();
  await userEvent.type(screen.getByLabelText("Width"), "{Backspace}4");
  await waitFor(() => {
    expect(screen.queryByText("needs attention")).toBeNull();
  });
  expect(screen.getByLabelText<HTMLInputElement>("Width").value).toBe("64");
});

it("does not read a decimal comma as a thousands separator", async () => {
  show();
  await userEvent.click(await screen.findByRole("button", { name: /^Optimizer/ }));
  expect(await screen.findByText("Weight decay is for matrices.")).toBeDefined();
  await userEvent.type(screen.getByLabelText("Clip norm"), "0,5");
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "1,024");
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await waitFor(() => {
    expect(sent).toHaveLength(1);
  });
  expect(sent[0]?.body).toMatchObject({ optimizer: { clip_norm: "0,5" }, model: { width: 1_024 } });
});

const yamlText = () => screen.getByLabelText<HTMLTextAreaElement>("Configuration as YAML");

/** Typing would be slow, and the library treats `{` as a key. */
function write(text: string) {
  fireEvent.change(yamlText(), { target: { value: text } });
}

it("keeps the draft across a reload, and shows it as YAML and back", async () => {
  show();
  await writeName("pilot");
  await userEvent.click(screen.getByLabelText("YAML"));
  expect(yamlText().value).toBe("# Fields that are left out keep their defaults.\nname: pilot\ndata:\n  dataset: ds_1\n");
  await userEvent.click(screen.getByLabelText("form"));
  expect(screen.getByLabelText<HTMLInputElement>("Name").value).toBe("pilot");
  expect(sessionStorage.getItem("trainwright.draft.ana.lab")).toContain("pilot");
});

it("keeps fields and YAML in sync, including the YAML's comments", async () => {
  show();
  await userEvent.click(await screen.findByLabelText("YAML"));
  write("name: pilot  # the seventh\ndata: {dataset: ds_1}\nmodel:\n  width: 64\n");
  await userEvent.click(screen.getByLabelText("form"));
  await openModel();
  expect(screen.getByLabelText<HTMLInputElement>("Width").value).toBe("64");
  await userEvent.clear(screen.getByLabelText("Width"));
  await userEvent.type(screen.getByLabelText("Width"), "128");
  await userEvent.click(screen.getByLabelText("YAML"));
  expect(yamlText().value).toContain("name: pilot # the seventh");
  expect(yamlText().value).toContain("width: 128");
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await waitFor(() => {
    expect(sent).toHaveLength(1);
  });
  expect(sent[0]?.body).toEqual({ name: "pilot", data: { dataset: "ds_1" }, model: { width: 128 } });
});

it("links to the lines of syntax errors and API errors", async () => {
  show();
  await userEvent.click(await screen.findByLabelText("YAML"));
  write("name: pilot\ndata: {dataset: ds_1}\nmodel:\n  width: 63\n");
  await userEvent.click(await screen.findByRole("button", { name: "line 4, model.width" }));
  expect(document.activeElement).toBe(yamlText());
  expect(yamlText().value.slice(yamlText().selectionStart, yamlText().selectionEnd)).toBe("  width: 63");
  write("name: pilot\ndata: {dataset: ds_1\nmodel: 1\n");
  expect(await screen.findByRole("button", { name: "line 3" })).toBeDefined();
  await waitFor(() => {
    expect(markedLines()).toEqual(["3"]);
  });
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Start run" }).disabled).toBe(true);
  await userEvent.click(screen.getByLabelText("form"));
  expect(screen.getByText(/is not valid yet/)).toBeDefined();
  write("name: pilot\ndata: {dataset: ds_1}\nmodle: {width: 64}\n");
  await userEvent.click(screen.getByLabelText("form"));
  expect(screen.getByText("The form has no field for modle.width. Remove or rename it first.")).toBeDefined();
});

it("saves a recipe without the run's name and data, applies it, and deletes it", async () => {
  const saved: unknown[] = [];
  const recipes = [{ id: "rec_1", name: "night", spec: { model: { width: 96 } }, problems: [], saved: "2026-11-21T13:00:00Z", saved_by: "ana" }];
  server.use(
    http.get("*/recipes", () => HttpResponse.json({ items: recipes })),
    http.post("*/recipes", async ({ request }) => {
      saved.push(await request.json());
      return HttpResponse.json(recipes[0], { status: 201 });
    }),
    http.delete("*/recipes/rec_1", () => {
      recipes.length = 0;
      return new HttpResponse(null, { status: 204 });
    }),
  );
  show();
  await writeName("pilot");
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  await userEvent.click(screen.getByRole("button", { name: "Save as recipe" }));
  await userEvent.type(screen.getByLabelText("Recipe name"), "night");
  await userEvent.click(screen.getByRole("button", { name: "Replace recipe" }));
  await waitFor(() => {
    expect(saved).toEqual([{ name: "night", spec: { model: { width: 64 } } }]);
  });
  await userEvent.selectOptions(screen.getByLabelText("Recipe"), "night");
  expect(screen.getByLabelText<HTMLInputElement>("Width").value).toBe("96");
  expect(screen.getByLabelText<HTMLInputElement>("Name").value).toBe("pilot");
  await userEvent.click(screen.getByRole("button", { name: "Delete recipe" }));
  await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Delete recipe" }));
  await waitFor(() => {
    expect(screen.queryByLabelText("Recipe")).toBeNull();
  });
});

it("shows the estimate and its source", async () => {
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("1 h 39 min")).toBeDefined();
  expect(estimate.textContent).toContain("compute0.0185 petaFLOP/s-days");
  expect(estimate.textContent).toContain("with a vocabulary of 4,096 tokens");
  expect(estimate.textContent).toContain("measured: 441,000 tokens/s in pilot-6 on node-a");
  expect(estimate.textContent).toContain("1 GiB each; the team has 12 GiB of checkpoints now");
  expect(within(estimate).queryByText("node memory")).toBeNull();
  await userEvent.clear(screen.getByLabelText("Width"));
  await userEvent.type(screen.getByLabelText("Width"), "32");
  expect(await within(estimate).findByText("over 2 h")).toBeDefined();
  expect(estimate.textContent).toContain("At the fastest node's peak it would take 2 h.");
  await userEvent.type(screen.getByLabelText("Width"), "8");
  expect(await within(estimate).findByText("not measured yet")).toBeDefined();
  expect(estimate.textContent).not.toContain("peak");
});

it("keeps the estimate of the last configuration that could be estimated while a field is invalid", async () => {
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("1 h 39 min")).toBeDefined();
  expect(estimate.textContent).not.toContain("last configuration");
  // At once: typed slowly, 6 alone would be the last valid width.
  fireEvent.change(screen.getByLabelText("Width"), { target: { value: "63" } });
  expect(await within(estimate).findByText(/^For the last configuration that could be estimated/)).toBeDefined();
  expect(within(estimate).getByText("1 h 39 min")).toBeDefined();
  expect(within(estimate).getByText("parameters").nextElementSibling?.textContent).toBe("361 k");
});

it("hides the figures of the earlier configuration until those of a chosen preset arrive, but not while the run is named", async () => {
  let answer: () => void = () => undefined;
  const asked = new Promise<void>((resolve) => (answer = resolve));
  show(() => undefined, { "model.width": "32" });
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  const verdict = screen.getByRole("status", { name: "Verdict" });
  expect((await within(estimate).findByText("over 2 h")).closest("[inert]")).toBeNull();
  await waitFor(() => {
    expect(verdict.textContent).toContain("Fits");
  });
  server.use(
    http.post("*/runs/estimate", async () => {
      await asked;
      return HttpResponse.json(ESTIMATE);
    }),
  );
  await writeName("pilot");
  expect(estimate.querySelector("[inert]")).toBeNull();
  await userEvent.click(screen.getByRole("radio", { name: /^nano/ }));
  expect(within(estimate).getByText("over 2 h").closest("[inert]")).not.toBeNull();
  expect(verdict.textContent).toContain("Checking…");
  await waitFor(() => {
    expect(verdict.textContent).toContain("Fits");
  });
  expect(within(estimate).getByText("over 2 h").closest("[inert]")).not.toBeNull();
  answer();
  expect((await within(estimate).findByText("1 h 39 min")).closest("[inert]")).toBeNull();
});

it("shows the estimate and the memory of a run that no node could run, but no time", async () => {
  const problem = { field: "model.layers", message: "The rank that needs the most memory takes 1.9 GiB.", value: 6 };
  const plan = { ...PLAN, slot_bytes: GIB, too_large: "No node has 1.9 GiB." };
  server.use(
    http.post("*/runs/validate", async ({ request }) => {
      const { model } = (await request.json()) as { model?: { width?: number } };
      return HttpResponse.json({ valid: false, problems: [problem], spec: asStored(model), parameters: 360_768, train_tokens: null, warnings: [] });
    }),
    http.post("*/runs/plan", () => HttpResponse.json(plan)),
  );
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("0.0185")).toBeDefined();
  expect(estimate.textContent).toContain("1.9 GiB");
  expect(await within(estimate).findByText(/Its slot has 1 GiB on node-a/)).toBeDefined();
  expect(within(estimate).getByText("time").parentElement?.textContent).toBe("timedoes not fit");
  expect(within(estimate).getByText("slot-hours").nextElementSibling?.textContent).toBe("–");
  expect(estimate.textContent).not.toContain("last configuration");
  expect(screen.getByRole("status", { name: "Verdict" }).textContent).toContain("Cannot start yet");
});

it("estimates a fork from its start step", async () => {
  const asked: (string | null)[] = [];
  server.use(
    http.post("*/runs/estimate", ({ request }) => {
      asked.push(new URL(request.url).searchParams.get("begin_step"));
      return HttpResponse.json(ESTIMATE);
    }),
  );
  show(() => undefined, { "model.width": "64" }, 4_900);
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("1 h 39 min")).toBeDefined();
  expect(asked).toEqual(["4900"]);
  expect(within(estimate).getByText("tokens").nextElementSibling?.textContent).toBe("51.2 k");
});

it("shows no estimate for a fork without steps left", async () => {
  server.use(http.post("*/runs/estimate", () => HttpResponse.error()));
  show(() => undefined, { "model.width": "64" }, 5_000);
  const estimate = await screen.findByRole("region", { name: "Estimate" });
  expect(await within(estimate).findByText("No estimate: the fork starts at step 5,000, so it needs more steps than that.")).toBeDefined();
});

it("shows the node memory used by checkpoints and offloading", async () => {
  server.use(http.post("*/runs/estimate", () => HttpResponse.json({ ...ESTIMATE, host_bytes: 51 * GIB })));
  show();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "64");
  const memory = await screen.findByText("node memory");
  expect(memory.parentElement?.textContent).toBe("node memory51 GiBper node, for checkpoints and offloaded tensors");
});

it("restores a draft except for another dataset's data fields, and starts over", async () => {
  const values = { name: "pilot", "data.dataset": "ds_1", "data.tokenizer.kind": "bytes", "model.width": "64" };
  storeDraft({ userId: "bo", team: "lab" }, { ...values, name: "not yours" });
  storeDraft({ userId: "ana", team: "lab" }, values);
  show().unmount();
  const page = show();
  expect(await screen.findByText(/^Restored your draft of/)).toBeDefined();
  expect((await name()).value).toBe("pilot");
  await openData();
  expect(screen.getByLabelText<HTMLSelectElement>("Tokenizer kind").value).toBe("bytes");
  page.unmount();
  const other = show(() => undefined, { "data.dataset": "ds_2" });
  expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("pilot");
  await openData();
  expect(screen.getByLabelText<HTMLSelectElement>("Tokenizer kind").value).toBe("");
  await userEvent.click(screen.getByRole("button", { name: "Start over" }));
  expect((await name()).value).toBe("run");
  expect(screen.queryByText(/^Restored your draft of/)).toBeNull();
  other.unmount();
  storeDraft({ userId: "ana", team: "lab" }, values);
  show(() => undefined, { name: "", "data.dataset": "ds_1" });
  expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("");
  expect(screen.queryByText(/^Restored your draft of/)).toBeNull();
});

it("shows and sends the FP8 settings for FP8 only, with errors at their fields", async () => {
  show();
  await writeName("pilot");
  expect(screen.queryByRole("button", { name: /^Precision/ })).toBeNull();
  await userEvent.selectOptions(screen.getByLabelText("Precision"), "fp8");
  await userEvent.click(screen.getByRole("button", { name: /^Precision/ }));
  expect(screen.getByLabelText("Skip limit").getAttribute("placeholder")).toBe("3");
  expect(screen.getByText("Steps in a row. Default 3.")).toBeDefined();
  await userEvent.type(screen.getByLabelText("Skip limit"), "-1");
  expect(await screen.findByRole("link", { name: "Precision: skip limit" })).toBeDefined();
  expect(screen.getByLabelText("Skip limit").getAttribute("aria-invalid")).toBe("true");
  await userEvent.selectOptions(screen.getByLabelText("Precision"), "bf16");
  expect(screen.queryByLabelText("Skip limit")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await waitFor(() => {
    expect(sent).toHaveLength(1);
  });
  expect(sent[0]?.body).toEqual({ name: "pilot", data: { dataset: "ds_1" }, precision: { kind: "bf16" } });
});

it("turns off a default by keyboard, sends null for it, and keeps it through YAML", async () => {
  show();
  await writeName("pilot");
  await userEvent.click(screen.getByRole("button", { name: /^Optimizer/ }));
  expect(screen.getByText("Gradients are scaled down; no clipping when off. Default 1.")).toBeDefined();
  await userEvent.type(screen.getByLabelText("Clip norm"), "2");
  await userEvent.tab();
  await userEvent.keyboard(" ");
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "Turn off clip norm" }).checked).toBe(true);
  expect(screen.getByLabelText<HTMLInputElement>("Clip norm").value).toBe("");
  await userEvent.click(screen.getByRole("button", { name: /^Optimizer/ }));
  expect(screen.getByText("clip norm off")).toBeDefined();
  await userEvent.click(screen.getByLabelText("YAML"));
  await userEvent.click(screen.getByLabelText("form"));
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await waitFor(() => {
    expect(sent).toHaveLength(1);
  });
  expect(sent[0]?.body).toEqual({ name: "pilot", data: { dataset: "ds_1" }, optimizer: { clip_norm: null } });
});

it("turns a field on again when a number is typed", async () => {
  show();
  await userEvent.click(await screen.findByRole("button", { name: /^Optimizer/ }));
  await userEvent.click(screen.getByRole("checkbox", { name: "Turn off clip norm" }));
  await userEvent.type(screen.getByLabelText("Clip norm"), "2");
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "Turn off clip norm" }).checked).toBe(false);
  expect(screen.getByLabelText<HTMLInputElement>("Clip norm").value).toBe("2");
});

it("offers tokenizers or datasets by name if the tokenizer kind needs a source", async () => {
  show();
  await writeName("pilot");
  await openData();
  expect(screen.queryByLabelText("Uploaded tokenizer")).toBeNull();
  await userEvent.selectOptions(screen.getByLabelText("Tokenizer kind"), "dataset");
  await userEvent.selectOptions(screen.getByLabelText("Tokenizer dataset"), "letters");
  await userEvent.selectOptions(screen.getByLabelText("Tokenizer kind"), "uploaded");
  expect(screen.getByLabelText<HTMLSelectElement>("Uploaded tokenizer").value).toBe("");
  await userEvent.selectOptions(screen.getByLabelText("Uploaded tokenizer"), "gpt2");
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await waitFor(() => {
    expect(sent).toHaveLength(1);
  });
  expect(sent[0]?.body).toEqual({ name: "pilot", data: { dataset: "ds_1", tokenizer: { kind: "uploaded", source: "tok_1" } } });
  await userEvent.selectOptions(screen.getByLabelText("Tokenizer kind"), "bytes");
  expect(screen.queryByLabelText("Uploaded tokenizer")).toBeNull();
});

/** A spec as the server returns it: what was written, with defaults for the rest. */
function asStored(model: object = {}) {
  const { spec } = aRun();
  return { ...spec, model: { ...spec.model, ...model } };
}

it("plans the run on hardware that no node has, with its resources", async () => {
  const asked: unknown[] = [];
  server.use(
    http.post("*/runs/what-if", async ({ request }) => {
      const { resources } = (await request.json()) as { resources: { nodes: number } };
      asked.push([new URL(request.url).searchParams.get("gpu"), resources]);
      const too_large = resources.nodes > 1 ? null : "Each rank needs 90 GiB, and this GPU has 80 GiB. Lower model.width.";
      const plan = { ...PLAN, memory: [{ rank: 0, total: resources.nodes > 1 ? 40 * GIB : 90 * GIB }], too_large };
      return HttpResponse.json({ gpu: GPU, nodes: resources.nodes, slots_per_node: 8, plan, flops: 1e18, assumed_mfu: 0.4, seconds: 7_200 });
    }),
  );
  show();
  await userEvent.selectOptions(await screen.findByLabelText("What if it ran on other hardware?"), GPU.name);
  const panel = screen.getByRole("region", { name: "Other hardware" });
  await waitFor(() => {
    expect(panel.textContent).toContain("Does not fit H100 80GB HBM3 × 8");
  });
  expect(panel.textContent).not.toMatch(/time|about/);
  expect(panel.textContent).toContain("Each rank needs 90 GiB, and this GPU has 80 GiB. Lower “Width”.");
  await userEvent.selectOptions(screen.getByLabelText("Nodes"), "4");
  await waitFor(() => {
    expect(panel.textContent).toContain("Fits H100 80GB HBM3 × 8 on each of 4 nodes");
  });
  expect(panel.textContent).toContain("about 2 h");
  expect(panel.textContent).toContain("Estimated, not measured: assumes 40 % of the vendor's peak");
  expect(asked.at(-1)).toEqual([GPU.name, { device: "cuda", nodes: 4, slots_per_node: 8 }]);
});

it("names the errors of the form as such beside other hardware, by the label of their field", async () => {
  const problem = { field: "model.width", message: "Must be even.", value: 63 };
  server.use(http.post("*/runs/what-if", () => HttpResponse.json({ title: "Invalid", status: 422, code: "invalid", detail: "Invalid.", errors: [problem] }, { status: 422 })));
  show();
  await userEvent.selectOptions(await screen.findByLabelText("What if it ran on other hardware?"), GPU.name);
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "63");
  const panel = screen.getByRole("region", { name: "Other hardware" });
  await waitFor(() => {
    expect(panel.textContent).toContain("Fix the problem of the form first.");
  });
  expect(panel.textContent).not.toContain("Must be even.");
  expect(within(screen.getByRole("complementary", { name: "Summary" })).getByRole("link", { name: "Model: width" })).toBeDefined();
});
