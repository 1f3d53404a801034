import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it } from "vitest";
import { remove, uploadStore } from "@/features/datasets/upload/uploadStore";
import { openApp } from "@tests/support/app";
import { aDataset } from "@tests/support/datasets";
import { server } from "@tests/support/server";
import { TusServer } from "@tests/support/tus";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", email_verified: true, site_admin: false, teams: [{ slug: "lab", name: "lab", role: "editor" }] };
const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such thing." };

let tus: TusServer;

beforeEach(() => {
  tus = new TusServer();
});

afterEach(async () => {
  for (const { key } of uploadStore.all()) await remove(key);
});

/** The datasets page of a team that has so many datasets. */
async function open(datasets: number) {
  const items = Array.from({ length: datasets }, (_, index) => aDataset({ id: `ds_${index}`, name: `letters ${index}` }));
  server.use(
    ...tus.handlers,
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/datasets", () => HttpResponse.json({ items, next_cursor: null })),
    http.get("*/api/v1/teams/lab", () => {
      const stored = tus.list().reduce((bytes, upload) => bytes + upload.bytes, 0);
      return HttpResponse.json({ quota: [], storage: { used_bytes: stored, limit_bytes: 1_024 } });
    }),
    http.all("*/api/v1/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab/datasets");
  await screen.findByLabelText("Choose files");
}

it.each([
  [0, "No datasets yet.", false],
  [1, "letters 0", false],
  [2, "letters 1", true],
])("offers to mix datasets once there are two: %i", async (datasets, text, offered) => {
  await open(datasets);
  await screen.findByText(text);
  expect(screen.queryByRole("button", { name: "Mix datasets" }) !== null).toBe(offered);
});

it("counts a file as stored as soon as its upload begins, and no longer once it is removed", async () => {
  const release = tus.hold();
  await open(0);
  expect(await screen.findByText(/^0 B/)).toBeDefined();
  await userEvent.upload(screen.getByLabelText("Choose files"), new File(["x".repeat(512)], "a.txt"));
  // Sooner than the next of the regular updates.
  const soon = { timeout: 2_000 };
  expect(await screen.findByText(/^512 B/, undefined, soon)).toBeDefined();
  release();
  await userEvent.click(await screen.findByRole("button", { name: "Remove a.txt" }));
  await userEvent.click(await screen.findByRole("button", { name: "Remove file" }));
  expect(await screen.findByText(/^0 B/, undefined, soon)).toBeDefined();
});
