import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it } from "vitest";
import { storeDraft } from "@/features/runs/form/draft";
import { markedLines, name, openData, openModel, sent, serveRunForm, showRunForm, writeName, writeYaml, yamlText } from "@tests/support/runForm";
import { server } from "@tests/support/server";

beforeEach(serveRunForm);

it("keeps the draft across a reload, and shows it as YAML and back", async () => {
  showRunForm();
  await writeName("pilot");
  await userEvent.click(screen.getByLabelText("YAML"));
  expect(yamlText().value).toBe("# Fields that are left out keep their defaults.\nname: pilot\ndata:\n  dataset: ds_1\n");
  await userEvent.click(screen.getByLabelText("form"));
  expect(screen.getByLabelText<HTMLInputElement>("Name").value).toBe("pilot");
  expect(sessionStorage.getItem("trainwright.draft.ana.lab")).toContain("pilot");
});

it("keeps fields and YAML in sync, including the YAML's comments", async () => {
  showRunForm();
  await userEvent.click(await screen.findByLabelText("YAML"));
  writeYaml("name: pilot  # the seventh\ndata: {dataset: ds_1}\nmodel:\n  width: 64\n");
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
  showRunForm();
  await userEvent.click(await screen.findByLabelText("YAML"));
  writeYaml("name: pilot\ndata: {dataset: ds_1}\nmodel:\n  width: 63\n");
  await userEvent.click(await screen.findByRole("button", { name: "line 4, model.width" }));
  expect(document.activeElement).toBe(yamlText());
  expect(yamlText().value.slice(yamlText().selectionStart, yamlText().selectionEnd)).toBe("  width: 63");
  writeYaml("name: pilot\ndata: {dataset: ds_1\nmodel: 1\n");
  expect(await screen.findByRole("button", { name: "line 3" })).toBeDefined();
  await waitFor(() => {
    expect(markedLines()).toEqual(["3"]);
  });
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Start run" }).disabled).toBe(true);
  await userEvent.click(screen.getByLabelText("form"));
  expect(screen.getByText(/is not valid yet/)).toBeDefined();
  writeYaml("name: pilot\ndata: {dataset: ds_1}\nmodle: {width: 64}\n");
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
  showRunForm();
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

it("restores a draft except for another dataset's data fields, and starts over", async () => {
  const values = { name: "pilot", "data.dataset": "ds_1", "data.tokenizer.kind": "bytes", "model.width": "64" };
  storeDraft({ userId: "bo", team: "lab" }, { ...values, name: "not yours" });
  storeDraft({ userId: "ana", team: "lab" }, values);
  showRunForm().unmount();
  const page = showRunForm();
  expect(await screen.findByText(/^Restored your draft of/)).toBeDefined();
  expect((await name()).value).toBe("pilot");
  await openData();
  expect(screen.getByLabelText<HTMLSelectElement>("Tokenizer kind").value).toBe("bytes");
  page.unmount();
  const other = showRunForm(() => undefined, { "data.dataset": "ds_2" });
  expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("pilot");
  await openData();
  expect(screen.getByLabelText<HTMLSelectElement>("Tokenizer kind").value).toBe("");
  await userEvent.click(screen.getByRole("button", { name: "Start over" }));
  expect((await name()).value).toBe("run");
  expect(screen.queryByText(/^Restored your draft of/)).toBeNull();
  other.unmount();
  storeDraft({ userId: "ana", team: "lab" }, values);
  showRunForm(() => undefined, { name: "", "data.dataset": "ds_1" });
  expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("");
  expect(screen.queryByText(/^Restored your draft of/)).toBeNull();
});

it("turns off a default by keyboard, sends null for it, and keeps it through YAML", async () => {
  showRunForm();
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
