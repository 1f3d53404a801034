import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, it } from "vitest";
import type { Dataset } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { DatasetDetail } from "@/features/datasets/detail/DatasetDetail";
import { DEFAULT_CURATION } from "@/features/datasets/curation/curation";
import { aDataset, aPreparation, aVersion } from "@tests/support/datasets";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

beforeEach(() => {
  server.use(http.get("*/datasets/ds_1/versions/:number/documents", () => HttpResponse.json({ items: [], next_cursor: null })));
});

function show(dataset: Dataset): void {
  server.use(
    http.get("*/teams/lab/datasets/ds_1", () => HttpResponse.json(dataset)),
    http.get("*/teams/lab/uploads", () => HttpResponse.json({ items: [] })),
  );
  renderRoute(
    <AsyncBoundary>
      <DatasetDetail team="lab" datasetId="ds_1" onDeleted={() => undefined} />
    </AsyncBoundary>,
  );
}

it("shows how many documents each filter dropped", async () => {
  show(aDataset());
  const panel = within(await screen.findByRole("region", { name: "Version 1" }));
  const terms = panel.getAllByRole("term").map((term) => `${term.textContent}: ${term.nextElementSibling?.textContent ?? ""}`);
  expect(terms).toEqual([
    "documents: 1,200",
    "kept: 1,150 96 %",
    "dropped: duplicate: 30 2.5 %",
    "dropped: too short: 20 1.7 %",
    "could not be read: 2",
    "characters kept: 350 k",
  ]);
  expect(panel.getByText("1,150 documents, 90 k tokens for training, 1,000 for validation")).toBeDefined();
  expect(panel.getByText("Half of the 1,150 documents have up to 256 characters. The longest has between 257 and 512.")).toBeDefined();
});

it("names a dataset of the same files", async () => {
  show(aDataset({ same_files_as: [{ dataset: "ds_2", name: "copies", version: 3 }] }));
  const link = await screen.findByRole("link", { name: "copies" });
  expect(link.getAttribute("href")).toBe("/lab/datasets/ds_2");
  expect(link.parentElement?.textContent).toBe("Version 3 of copies has the same files.");
});

it("shows lengths in tokens and as a table", async () => {
  show(aDataset());
  await userEvent.click(await screen.findByRole("radio", { name: "tokens" }));
  expect(screen.getByText("Half of the 1,150 documents have up to 64 tokens. The longest has between 65 and 128.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Length as a table" }));
  const rows = within(screen.getByRole("region", { name: "Length, table" })).getAllByRole("row").slice(1);
  expect(rows.map((row) => row.textContent)).toEqual(["641,000", "128150"]);
});

it("mentions the validation split from the tail only if it was used", async () => {
  const sentence = /The last 1 % of tokens is the validation split, because no document fell into it/;
  show(aDataset({ versions: [aVersion({ preparations: [aPreparation({ validation_from_tail: true }), aPreparation({ id: "prep_2" })] })] }));
  expect(await screen.findAllByText(sentence)).toHaveLength(1);
});

it("shows the progress of reading and tokenizing, cancels, and retries", async () => {
  const asked: unknown[] = [];
  server.use(
    http.post("*/datasets/ds_1/preparations/prep_1/cancel", () => {
      asked.push("cancel");
      return HttpResponse.json(aPreparation({ state: "cancelled" }));
    }),
    http.post("*/datasets/ds_1/preparations", async ({ request }) => {
      asked.push(await request.json());
      return HttpResponse.json(aPreparation({ state: "waiting" }), { status: 202 });
    }),
  );
  const working = aPreparation({ state: "working", shards_done: 3, shards_total: 8, tokens_done: 1_200_000 });
  const cancelled = aPreparation({ id: "prep_2", state: "cancelled", tokenizer: { kind: "bytes", source: null, vocabulary: null } });
  show(
    aDataset({
      versions: [
        aVersion({ number: 3, state: "reading", bytes: 4_000_000, read_bytes: 1_000_000, statistics: null, preparations: [] }),
        aVersion({ number: 2, preparations: [working, cancelled] }),
        aVersion({ number: 1, state: "failed", error: "2 of 10 documents cannot be read. Mend them.", statistics: null, preparations: [] }),
      ],
    }),
  );
  expect(await screen.findByText("reading, 977 KiB of 3.81 MiB")).toBeDefined();
  expect(screen.getByText("tokenizing shards, 3 of 8; 1.2 M tokens so far")).toBeDefined();
  expect(screen.getByText("2 of 10 documents cannot be read. Mend them.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Cancel preparation with BPE, 4,096 tokens" }));
  await userEvent.click(screen.getByRole("button", { name: "Retry with bytes" }));
  await waitFor(() => {
    expect(asked).toEqual(["cancel", { version: 2, tokenizer: cancelled.tokenizer, validation_fraction: 0.01 }]);
  });
});

it("says once that a version failed, and not of a preparation that could not start", async () => {
  const error = "3 of 200 documents could not be read. Fix the files.";
  const failed = aPreparation({ state: "failed", error });
  show(aDataset({ versions: [aVersion({ state: "failed", error, statistics: null, preparations: [failed] })] }));
  expect(await screen.findAllByText(error)).toHaveLength(1);
  expect(screen.getAllByText("Failed")).toHaveLength(1);
});

it("shows one state of a version: its own, or that of its preparations", async () => {
  show(aDataset({ versions: [aVersion({ number: 2, preparations: [] }), aVersion({ preparations: [aPreparation()] })] }));
  const states = (version: number) => within(screen.getByRole("region", { name: `Version ${version}` })).queryAllByText(/^(Processed|Ready)$/);
  await screen.findByRole("region", { name: "Version 2" });
  expect(states(2).map(({ textContent }) => textContent)).toEqual(["Processed"]);
  expect(states(1).map(({ textContent }) => textContent)).toEqual(["Ready"]);
});

it("shows documents in pages, dropped ones with the reason", async () => {
  const sample = (number: number, dropped: string | null) => ({
    number,
    file: "a.jsonl",
    line: number + 1,
    characters: 12,
    text: `letter ${number}`,
    kept: dropped === null,
    dropped_by: dropped,
  });
  server.use(
    http.get("*/datasets/ds_1/versions/1/documents", ({ request }) => {
      const second = new URL(request.url).searchParams.get("cursor") === "c2";
      return HttpResponse.json(
        second ? { items: [sample(2, null)], next_cursor: null } : { items: [sample(0, null), sample(1, "duplicate")], next_cursor: "c2" },
      );
    }),
  );
  show(aDataset());
  const list = await screen.findByRole("list", { name: "Documents" });
  expect(within(list).getAllByRole("listitem").map((item) => item.textContent)).toEqual([
    "a.jsonl:112 charactersletter 0",
    "a.jsonl:212 charactersdropped: duplicateletter 1",
  ]);
  await userEvent.click(screen.getByRole("button", { name: "Show more documents" }));
  expect(await screen.findByText("letter 2")).toBeDefined();
  expect(screen.getByRole("link", { name: "Runs with this dataset" }).getAttribute("href")).toBe("/lab/runs?group=dataset&open=ds_1");
});

it("counts what a curation keeps before creating a version", async () => {
  const asked: unknown[] = [];
  server.use(
    http.post("*/teams/lab/datasets/count", async ({ request }) => {
      asked.push(await request.json());
      return HttpResponse.json({ ...aVersion().statistics, kept: 800, dropped: { min_characters: 400 }, counted_fraction: 0.25 });
    }),
    http.post("*/datasets/ds_1/versions", async ({ request }) => {
      asked.push(await request.json());
      return HttpResponse.json(aDataset(), { status: 201 });
    }),
  );
  show(aDataset());
  await userEvent.click(await screen.findByRole("button", { name: "New version" }));
  await userEvent.click(screen.getByRole("radio", { name: "curation only" }));
  await userEvent.click(screen.getByRole("checkbox", { name: /^Drop exact duplicates/ }));
  await userEvent.type(screen.getByLabelText("Minimum length, characters"), "100");
  await userEvent.click(screen.getByRole("button", { name: "Count" }));
  expect(await screen.findByText("This keeps 800 of 1,200 documents (67 %), 350 k characters.")).toBeDefined();
  expect(screen.getByText("Dropped: 400 too short.")).toBeDefined();
  expect(screen.getByText(/Estimated from 25 % of the documents/)).toBeDefined();
  await userEvent.type(screen.getByLabelText("Minimum length, characters"), "0");
  expect(screen.getByText("Result before your last change:")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Create version" }));
  await waitFor(() => {
    expect(asked).toHaveLength(2);
  });
  const curation = { ...DEFAULT_CURATION, drop_duplicates: true };
  expect(asked).toEqual([
    { dataset: "ds_1", version: 1, curation: { ...curation, rules: { min_characters: 100 } } },
    { uploads: null, base: 1, keep_files: false, curation: { ...curation, rules: { min_characters: 1_000 } } },
  ]);
});

it("shows what deleting a version frees, and what still uses it", async () => {
  const [shared] = aVersion().files;
  const own = { ...shared, name: "b.jsonl", bytes: 2_048, digest: "bb".repeat(32) } as NonNullable<typeof shared>;
  const detail = "Run pilot-7 trains on version 2 of letters. Cancel it or wait for its end, then delete.";
  server.use(http.delete("*/datasets/ds_1/versions/2", () => HttpResponse.json({ detail, code: "in_use" }, { status: 409 })));
  show(aDataset({ versions: [aVersion({ number: 2, files: shared === undefined ? [] : [shared, own] }), aVersion()] }));
  await userEvent.click(await screen.findByRole("button", { name: "Delete version 2" }));
  const dialog = within(screen.getByRole("dialog", { hidden: true }));
  expect(dialog.getByRole("heading", { hidden: true }).textContent).toBe("Delete version 2 of letters ds_1?");
  expect(dialog.getByText(/frees 2 KiB of files, unless .* Files that other versions use are kept/)).toBeDefined();
  await userEvent.click(dialog.getByText("Delete version"));
  expect(await dialog.findByText(detail)).toBeDefined();
});
