import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it, vi } from "vitest";
import { aDataset, aVersion } from "@tests/support/datasets";
import { asStored, DATASETS, GIB, name, openData, openModel, PLAN, sent, serveRunForm, showRunForm, writeName, writeYaml, yamlText } from "@tests/support/runForm";
import { server } from "@tests/support/server";

beforeEach(serveRunForm);

it("shows API errors at the field and in the summary, and the size of a valid model", async () => {
  showRunForm();
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
  showRunForm();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "63");
  await screen.findByRole("link", { name: "Model: width" });
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  expect(await screen.findByText("Must be a multiple of 72.")).toBeDefined();
  expect(screen.getByRole("link", { name: "Model: width" })).toBeDefined();
});

it("goes to the first problem when the run is started", async () => {
  showRunForm();
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
  showRunForm();
  await name();
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await screen.findAllByText("No node has it.");
  expect(document.activeElement).toBe(screen.getByLabelText("Precision"));
});

it("shows errors of default values, but not of required fields that are still empty", async () => {
  showRunForm();
  await openModel();
  await userEvent.type(screen.getByLabelText("Width"), "66");
  expect(await screen.findByRole("link", { name: "Precision" })).toBeDefined();
  expect(screen.queryByRole("link", { name: "Name" })).toBeNull();
});

it("does not submit without a name, then sends the filled fields with one idempotency key", async () => {
  const created = vi.fn();
  showRunForm(created);
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
  showRunForm(() => undefined, {}, 0, ["letters", "letters-nano", "letters-nano-2"]);
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
  showRunForm();
  await userEvent.click(await screen.findByLabelText("YAML"));
  writeYaml(yamlText().value.replace("dataset: ds_1", "dataset: ds_1 # all of it"));
  await userEvent.click(screen.getByLabelText("form"));
  await userEvent.selectOptions(await screen.findByLabelText("Recipe"), "night");
  await userEvent.click(screen.getByRole("radio", { name: /^nano/ }));
  expect((await name()).value).toBe("letters-nano");
  await userEvent.click(screen.getByLabelText("YAML"));
  expect(yamlText().value).toContain("name: letters-nano");
  writeYaml(yamlText().value.replace("letters-nano", "pilot"));
  await userEvent.click(screen.getByLabelText("form"));
  await userEvent.selectOptions(await screen.findByLabelText("Recipe"), "night");
  expect((await name()).value).toBe("pilot");
});

it("begins with the newest dataset that can be read", async () => {
  const failed = aDataset({ id: "ds_2", name: "broken", versions: [aVersion({ state: "failed" })] });
  showRunForm(undefined, {}, 0, [], [failed, ...DATASETS]);
  const dataset = await screen.findByLabelText<HTMLSelectElement>("Dataset");
  expect(dataset.value).toBe("ds_1");
  expect(within(dataset).queryByText("broken")).toBeNull();
});

it("warns of a validation split that is too short", async () => {
  const warnings = ["There will be no validation loss: the validation split has 9 tokens. Raise data.validation_fraction."];
  server.use(http.post("*/runs/validate", () => HttpResponse.json({ valid: true, problems: [], spec: asStored(), parameters: 1, train_tokens: 1_000_000, warnings })));
  showRunForm();
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
  showRunForm();
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
  showRunForm();
  await name();
  await userEvent.click(screen.getByRole("button", { name: "Start run" }));
  await screen.findAllByText("No node has it.");
  expect(document.activeElement).toBe(screen.getByLabelText("Clip norm"));
});

it("counts the changed values of collapsed sections, and marks those with a problem", async () => {
  showRunForm();
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
  showRunForm();
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

it("shows and sends the FP8 settings for FP8 only, with errors at their fields", async () => {
  showRunForm();
  await writeName("pilot");
  expect(screen.queryByRole("button", { name: /^Precision/ })).toBeNull();
  await userEvent.selectOptions(screen.getByLabelText("Precision"), "fp8");
  await userEvent.click(screen.getByRole("button", { name: /^Precision/ }));
  expect(screen.getByLabelText("Skip limit").getAttribute("placeholder")).toBe("default: 3");
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

it("turns a field on again when a number is typed", async () => {
  showRunForm();
  await userEvent.click(await screen.findByRole("button", { name: /^Optimizer/ }));
  await userEvent.click(screen.getByRole("checkbox", { name: "Turn off clip norm" }));
  await userEvent.type(screen.getByLabelText("Clip norm"), "2");
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: "Turn off clip norm" }).checked).toBe(false);
  expect(screen.getByLabelText<HTMLInputElement>("Clip norm").value).toBe("2");
});

it("offers tokenizers or datasets by name if the tokenizer kind needs a source", async () => {
  showRunForm();
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
