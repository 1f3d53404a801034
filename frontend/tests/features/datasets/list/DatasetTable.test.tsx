import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it } from "vitest";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { NewDataset } from "@/features/datasets/create/NewDataset";
import { DatasetTable } from "@/features/datasets/list/DatasetTable";
import { remove, uploadStore } from "@/features/datasets/upload/uploadStore";
import { DEFAULT_CURATION } from "@/features/datasets/curation/curation";
import { aDataset } from "@tests/support/datasets";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";
import { TusServer } from "@tests/support/tus";

const EMPTY = "No datasets yet.";

beforeEach(() => {
  localStorage.clear();
  server.use(
    http.get("*/teams/lab/datasets", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.post("*/teams/lab/uploads/preview", async ({ request }) => {
      const { uploads } = (await request.json()) as { uploads: string[] };
      const files = uploads.map((upload) => ({ upload, name: "a.txt", format: "text", compression: "none", columns: [], field: null, documents: ["a ship"], rejected: [], problem: null }));
      return HttpResponse.json({ files, curation: DEFAULT_CURATION });
    }),
    ...new TusServer().handlers,
  );
});

afterEach(async () => {
  for (const { key } of uploadStore.all()) await remove(key);
});

it("tells datasets of one name apart by the ends of their ids, which no long name hides", async () => {
  const name = "a name that is longer than its column and therefore cut off";
  const named = (id: string, name: string) => ({ id, name, created: "2026-11-20T10:00:00Z", created_by: "Ana", versions: [] });
  const items = [named("ds_first", name), named("ds_other", name), named("ds_third", "corpus")];
  server.use(http.get("*/teams/lab/datasets", () => HttpResponse.json({ items, next_cursor: null })));
  renderRoute(
    <AsyncBoundary>
      <DatasetTable team="lab" />
    </AsyncBoundary>,
  );
  const links = await screen.findAllByRole("link");
  expect(links.map(({ textContent }) => textContent)).toEqual([`${name} first`, `${name} other`, "corpus"]);
  expect(screen.getByText("first").closest(".truncate")).toBeNull();
});

it("says how to begin only until there are files, also while they are previewed", async () => {
  renderRoute(
    <AsyncBoundary>
      <NewDataset team="lab" onCreated={() => undefined} />
      <DatasetTable team="lab" />
    </AsyncBoundary>,
  );
  expect(await screen.findByText(EMPTY)).toBeDefined();
  await userEvent.upload(await screen.findByLabelText("Choose files"), new File(["text"], "a.txt"));
  await waitFor(() => {
    expect(screen.queryByText(EMPTY)).toBeNull();
  });
  const preview = await screen.findByRole<HTMLButtonElement>("button", { name: "Preview files" });
  await waitFor(() => {
    expect(preview.disabled).toBe(false);
  });
  await userEvent.click(preview);
  expect(await screen.findByText("a ship")).toBeDefined();
  expect(screen.queryByText(EMPTY)).toBeNull();
});

it("finds datasets by the words of their names once there are several", async () => {
  const items = Array.from({ length: 8 }, (_, number) => aDataset({ id: `ds_${number}`, name: `corpus ${number}`, versions: [] }));
  server.use(
    http.get("*/teams/lab/datasets", ({ request }) => {
      const words = new URL(request.url).searchParams.get("q") ?? "";
      return HttpResponse.json({ items: items.filter(({ name }) => name.includes(words)), next_cursor: null });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <DatasetTable team="lab" />
    </AsyncBoundary>,
  );
  await userEvent.type(await screen.findByLabelText("Search datasets by name"), "corpus 5");
  await waitFor(() => {
    expect(screen.getAllByRole("link").map(({ textContent }) => textContent)).toEqual(["corpus 5"]);
  });
  await userEvent.type(screen.getByLabelText("Search datasets by name"), "0");
  expect(await screen.findByText("No matching datasets.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Show all datasets" }));
  await waitFor(() => {
    expect(screen.getAllByRole("link")).toHaveLength(8);
  });
});
