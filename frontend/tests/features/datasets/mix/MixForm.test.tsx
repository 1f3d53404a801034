import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it, vi } from "vitest";
import { MixForm } from "@/features/datasets/mix/MixForm";
import { DEFAULT_CURATION } from "@/features/datasets/curation/curation";
import { aDataset, aVersion } from "@tests/support/datasets";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("offers the datasets of all pages for a new version too", async () => {
  const pages = [{ items: [aDataset()], next_cursor: "ds_1" }, { items: [aDataset({ id: "ds_2", name: "poems" })], next_cursor: null }];
  server.use(http.get("*/teams/lab/datasets", ({ request }) => HttpResponse.json(pages[new URL(request.url).searchParams.has("cursor") ? 1 : 0])));
  renderRoute(<MixForm team="lab" initial={DEFAULT_CURATION} hasName={false} submitLabel="Create version" onSubmit={vi.fn()} onCreated={() => undefined} />);
  const row = within(await screen.findByRole("group", { name: "Dataset 1 of the mixture" }));
  expect(await row.findByRole("option", { name: "poems" })).toBeDefined();
});

it("offers readable datasets, disambiguates equal names, and names duplicates", async () => {
  const failed = aVersion({ state: "failed", error: "No usable document was found." });
  const items = [aDataset({ id: "ds_000001" }), aDataset({ id: "ds_000002" }), aDataset({ id: "ds_000003", name: "broken", versions: [failed] })];
  server.use(http.get("*/teams/lab/datasets", () => HttpResponse.json({ items, next_cursor: null })));
  const make = vi.fn();
  renderRoute(<MixForm team="lab" initial={DEFAULT_CURATION} hasName submitLabel="Create dataset" onSubmit={make} onCreated={() => undefined} />);
  const row = async (number: number) => within(await screen.findByRole("group", { name: `Dataset ${number} of the mixture` }));
  await (await row(1)).findByRole("option", { name: "letters (00001)" });
  const names = (await row(1)).getAllByRole("option").map((option) => option.textContent);
  expect(names).toEqual(["choose a dataset", "letters (00001)", "letters (00002)"]);
  const create = screen.getByRole("button", { name: "Create dataset" });
  await userEvent.click(create);
  expect(screen.getAllByText("This field is required.")).toHaveLength(3);
  for (const number of [1, 2]) await userEvent.selectOptions((await row(number)).getByLabelText("Dataset"), "ds_000002");
  await userEvent.type(screen.getByLabelText("Name"), "mix");
  await userEvent.click(create);
  expect(screen.getByRole("alert").textContent).toMatch(/^letters is in two rows: remove one/);
  expect(make).not.toHaveBeenCalled();
});

it("counts a mixture, and creates it from the same sources", async () => {
  const mixed = aVersion({ curation: { ...DEFAULT_CURATION, mix: [{ dataset: "ds_1", version: 1, weight: 1 }] } });
  const items = [aDataset(), aDataset({ id: "ds_2", name: "poems" }), aDataset({ id: "ds_3", name: "old mix", versions: [mixed] })];
  const counted: unknown[] = [];
  const make = vi.fn(() => Promise.resolve(aDataset()));
  server.use(
    http.get("*/teams/lab/datasets", () => HttpResponse.json({ items, next_cursor: null })),
    http.post("*/teams/lab/datasets/count", async ({ request }) => {
      counted.push(await request.json());
      const mix = [{ dataset: "ds_2", version: 3, documents: 40, characters: 9_000, share: 0.75 }];
      return HttpResponse.json({ ...aVersion().statistics, mix, counted_fraction: 1 });
    }),
  );
  renderRoute(<MixForm team="lab" initial={DEFAULT_CURATION} hasName submitLabel="Create dataset" onSubmit={make} onCreated={() => undefined} />);
  const row = async (number: number) => within(await screen.findByRole("group", { name: `Dataset ${number} of the mixture` }));
  await (await row(1)).findByRole("option", { name: "poems" });
  const names = (await row(1)).getAllByRole("option").map((option) => option.textContent);
  expect(names).toEqual(["choose a dataset", "letters", "poems"]);
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Count" }).disabled).toBe(true);
  await userEvent.selectOptions((await row(1)).getByLabelText("Dataset"), "letters");
  await userEvent.selectOptions((await row(2)).getByLabelText("Dataset"), "poems");
  await userEvent.type((await row(2)).getByLabelText("Version"), "3");
  await userEvent.clear((await row(2)).getByLabelText("Weight"));
  await userEvent.type((await row(2)).getByLabelText("Weight"), "3");
  expect((await row(2)).getByText("75 %")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Count" }));
  expect(await screen.findByText("poems, version 3: 40 documents, 9,000 characters, 75 % of the mixture.")).toBeDefined();
  await userEvent.type(screen.getByLabelText("Name"), "both");
  await userEvent.click(screen.getByRole("button", { name: "Create dataset" }));
  const mix = [
    { dataset: "ds_1", version: null, weight: 1 },
    { dataset: "ds_2", version: 3, weight: 3 },
  ];
  await waitFor(() => {
    expect(make).toHaveBeenCalledWith({ name: "both", curation: { ...DEFAULT_CURATION, mix } });
  });
  expect(counted).toEqual([{ dataset: null, version: null, curation: { ...DEFAULT_CURATION, mix } }]);
});
