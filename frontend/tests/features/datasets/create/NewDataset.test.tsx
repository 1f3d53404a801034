import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { Dataset, PreviewFile } from "@/api/types";
import { NewDataset } from "@/features/datasets/create/NewDataset";
import { NewVersion } from "@/features/datasets/create/NewVersion";
import { DEFAULT_CURATION } from "@/features/datasets/curation/curation";
import { remove, uploadStore } from "@/features/datasets/upload/uploadStore";
import { aDataset } from "@tests/support/datasets";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";
import { TusServer } from "@tests/support/tus";

let tus: TusServer;
let made: unknown[];

beforeEach(() => {
  tus = new TusServer();
  made = [];
  localStorage.clear();
  sessionStorage.clear();
  server.use(
    http.post("*/teams/lab/uploads/preview", async ({ request }) => {
      const { uploads, curation } = (await request.json()) as { uploads: string[]; curation: typeof DEFAULT_CURATION };
      const field = curation.read.field ?? "title";
      return HttpResponse.json({
        files: uploads.map((id) => lookAt(id, tus.uploads.get(id)?.name ?? "", field)),
        curation: { ...curation, read: { ...curation.read, field } },
      });
    }),
    http.get("*/teams/lab/datasets", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.post("*/teams/lab/datasets", async ({ request }) => {
      made.push(await request.json());
      return HttpResponse.json(aDataset(), { status: 201 });
    }),
    ...tus.handlers,
  );
});

afterEach(async () => {
  for (const { key } of uploadStore.all()) await remove(key);
});

function lookAt(id: string, name: string, field: string): PreviewFile {
  const broken = name.endsWith(".gz");
  return {
    upload: id,
    name,
    format: broken ? null : "csv",
    compression: "none",
    columns: broken ? [] : [{ name: "title", type: "text", usable: true }, { name: "body", type: "text", usable: true }, { name: "n", type: "number", usable: false }],
    field: broken ? null : field,
    documents: broken ? [] : [`a ${field}`],
    rejected: broken ? [] : [{ file: name, line: 3, reason: "is empty" }],
    problem: broken ? "b.csv.gz is named as gzip, but is none. Name it as what it is." : null,
  };
}

function show(onMade: (dataset: Dataset) => void = () => undefined): void {
  renderRoute(<NewDataset team="lab" onCreated={onMade} />);
}

async function choose(...names: string[]): Promise<void> {
  await userEvent.upload(
    await screen.findByLabelText("Choose files"),
    names.map((name) => new File(["text"], name)),
  );
}

it("reads the column chosen in the preview", async () => {
  const onMade = vi.fn();
  show(onMade);
  await choose("rows.csv");
  await userEvent.click(await screen.findByRole("button", { name: "Preview files" }).then(enabled));
  expect(await screen.findByText("a title")).toBeDefined();
  expect(screen.getByText("line 3 is empty")).toBeDefined();
  const field = screen.getByLabelText("Field");
  expect(within(field).getAllByRole("option").map((option) => option.textContent)).toEqual(["choose a field", "title", "body"]);
  await userEvent.selectOptions(field, "body");
  expect(await screen.findByText("a body")).toBeDefined();
  expect(screen.getByLabelText<HTMLInputElement>("Name").value).toBe("rows");
  await userEvent.click(screen.getByRole("button", { name: "Create dataset" }));
  await waitFor(() => {
    expect(onMade).toHaveBeenCalledOnce();
  });
  const curation = { ...DEFAULT_CURATION, read: { text_documents: "file", field: "body" } };
  expect(made).toEqual([{ name: "rows", uploads: ["up_1"], curation }]);
  expect(screen.queryByText("rows.csv")).toBeNull();
});

it("says that a dataset has the name already, while it is typed", async () => {
  const pages = [{ items: [aDataset()], next_cursor: "ds_1" }, { items: [aDataset({ id: "ds_9", name: "rows" })], next_cursor: null }];
  server.use(http.get("*/teams/lab/datasets", ({ request }) => HttpResponse.json(pages[new URL(request.url).searchParams.has("cursor") ? 1 : 0])));
  show();
  await choose("rows.csv");
  await userEvent.click(await screen.findByRole("button", { name: "Preview files" }).then(enabled));
  expect((await screen.findByRole("link", { name: "dataset of this name" })).getAttribute("href")).toBe("/lab/datasets/ds_9");
  await userEvent.type(screen.getByLabelText("Name"), " b");
  expect(screen.queryByRole("link", { name: "dataset of this name" })).toBeNull();
});

it("sends the same request again after its response was lost, and another one after a change", async () => {
  const keys: (string | null)[] = [];
  server.use(
    http.post("*/teams/lab/datasets", ({ request }) => {
      keys.push(request.headers.get("Idempotency-Key"));
      return HttpResponse.error();
    }),
  );
  show();
  await choose("rows.csv");
  await userEvent.click(await screen.findByRole("button", { name: "Preview files" }).then(enabled));
  const create = async (tries: number) => {
    await userEvent.click(await screen.findByRole("button", { name: "Create dataset" }).then(enabled));
    await waitFor(() => {
      expect(keys).toHaveLength(tries);
    });
  };
  await create(1);
  await create(2);
  await userEvent.type(screen.getByLabelText("Name"), " b");
  await create(3);
  expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
  expect(keys[1]).toBe(keys[0]);
  expect(keys[2]).not.toBe(keys[0]);
});

it("does not continue with an unreadable file until it is excluded", async () => {
  show();
  await choose("a.csv", "b.csv.gz");
  await userEvent.click(await screen.findByRole("button", { name: "Preview files" }).then(enabled));
  expect(await screen.findByText(/is named as gzip, but is none/)).toBeDefined();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Create dataset" }).disabled).toBe(true);
  expect(screen.getByText("b.csv.gz cannot be read. Exclude it, or change the options.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Exclude b.csv.gz" }));
  await userEvent.click(await screen.findByRole("button", { name: "Create dataset" }).then(enabled));
  await waitFor(() => {
    expect(made).toMatchObject([{ uploads: ["up_1"] }]);
  });
});

it("previews the first of many files, and creates a dataset from all", async () => {
  const names = Array.from({ length: 23 }, (_, n) => `part ${n}.csv`);
  for (const [n, name] of names.entries()) uploadedHere(`up_many${n}`, name);
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Preview files" }).then(enabled));
  expect(await screen.findByText(/Showing the first 20 of 23 files/)).toBeDefined();
  expect(screen.getAllByRole("heading", { level: 3 }).map((heading) => heading.textContent)).toEqual(names.slice(0, 20).map((name) => `${name}CSV`));
  await userEvent.click(screen.getByRole("button", { name: "Create dataset" }));
  await waitFor(() => {
    expect(made).toMatchObject([{ name: "part 0", uploads: names.map((_, n) => `up_many${n}`) }]);
  });
});

it("asks for the file of an interrupted upload, and resumes it", async () => {
  tus.begun("up_old", "rows.csv", 4, 3);
  show();
  expect(await screen.findByText("3 B of 4 B. Choose the file again to resume.")).toBeDefined();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Preview files" }).disabled).toBe(true);
  await choose("rows.csv");
  expect(await screen.findByText(/3 B of a file with this name and size/)).toBeDefined();
  expect(tus.uploads.get("up_old")?.offset).toBe(3);
  await userEvent.click(screen.getByRole("button", { name: "Yes, resume with rows.csv" }));
  await screen.findByRole("button", { name: "Preview files" }).then(enabled);
  expect([...tus.uploads.keys()]).toEqual(["up_old"]);
});

it("deletes an upload that only the server knows", async () => {
  tus.begun("up_other", "rows.csv", 4, 3);
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Remove rows.csv" }));
  await waitFor(() => {
    expect(tus.uploads.size).toBe(0);
  });
  expect(screen.queryByText("rows.csv")).toBeNull();
});

it("skips an empty file immediately and reports it", async () => {
  show();
  await userEvent.upload(await screen.findByLabelText("Choose files"), [new File(["text"], "rows.csv"), new File([], "nothing.txt")]);
  expect(screen.getByRole("status").textContent).toBe("nothing.txt is empty and was skipped.");
  await screen.findByRole("button", { name: "Preview files" }).then(enabled);
  expect(screen.queryByText("nothing.txt")).toBeNull();
  expect(screen.getByText("1 file ready")).toBeDefined();
});

it("asks before removing an uploaded file", async () => {
  tus.begun("up_here", "rows.csv", 4, 4);
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Remove rows.csv" }));
  await userEvent.click(screen.getByText("Cancel"));
  expect(tus.uploads.size).toBe(1);
  await userEvent.click(screen.getByRole("button", { name: "Remove rows.csv" }));
  await userEvent.click(screen.getByText("Remove file"));
  await waitFor(() => {
    expect(tus.uploads.size).toBe(0);
  });
});

it("remembers excluded files across pages, and for a new version selects only files added there", async () => {
  uploadedHere("up_a", "a.csv");
  uploadedHere("up_b", "b.csv");
  const first = renderRoute(<NewDataset team="lab" onCreated={() => undefined} />);
  await userEvent.click(await screen.findByRole("checkbox", { name: /b\.csv/ }));
  first.unmount();
  const second = renderRoute(<NewDataset team="lab" onCreated={() => undefined} />);
  expect((await screen.findByRole<HTMLInputElement>("checkbox", { name: /a\.csv/ })).checked).toBe(true);
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: /b\.csv/ }).checked).toBe(false);
  second.unmount();
  const [newest] = aDataset().versions;
  if (newest === undefined) throw new Error("no version");
  renderRoute(<NewVersion team="lab" dataset={aDataset()} newest={newest} onClose={() => undefined} />);
  expect((await screen.findByRole<HTMLInputElement>("checkbox", { name: /a\.csv/ })).checked).toBe(false);
  await choose("c.csv");
  expect((await screen.findByRole<HTMLInputElement>("checkbox", { name: /c\.csv/ })).checked).toBe(true);
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: /b\.csv/ }).checked).toBe(false);
  await userEvent.click(screen.getByRole("checkbox", { name: /b\.csv/ }));
  expect(screen.getByRole<HTMLInputElement>("checkbox", { name: /b\.csv/ }).checked).toBe(true);
});

it("selects no file that was uploaded by the command line", async () => {
  tus.begun("up_cli", "cli.csv", 4, 4);
  uploadedHere("up_mine", "here.csv");
  show();
  expect((await screen.findByRole<HTMLInputElement>("checkbox", { name: /here\.csv/ })).checked).toBe(true);
  const other = screen.getByRole<HTMLInputElement>("checkbox", { name: /cli\.csv/ });
  expect(other.checked).toBe(false);
  await userEvent.click(other);
  expect(other.checked).toBe(true);
});

/** An upload from an earlier visit with this browser. */
function uploadedHere(id: string, name: string): void {
  tus.begun(id, name, 4, 4);
  localStorage.setItem(`trainwright.upload.${id}`, "1");
}

async function enabled(button: HTMLElement): Promise<HTMLElement> {
  await waitFor(() => {
    expect((button as HTMLButtonElement).disabled).toBe(false);
  });
  return button;
}
