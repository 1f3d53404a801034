import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { afterEach, expect, it, vi } from "vitest";
import { LogPanel } from "@/features/runs/log/LogPanel";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const PARTS = ["step 1\nläng", "er\nstep 2\n"];
const PLACE = { team: "lab", run: "run_1", attempt: 2, file: "rank-0.log" };

afterEach(() => {
  vi.restoreAllMocks();
});

function showPanel() {
  renderRoute(<LogPanel place={PLACE} bytes={20} node={null} live={false} view={null} onView={() => undefined} />);
  return screen.findByRole("button", { name: "Download rank-0.log of attempt 2" });
}

/** jsdom's blobs have no `text`. */
function textOf(blob: Blob | undefined): Promise<unknown> {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => {
      resolve(reader.result);
    };
    reader.readAsText(blob ?? new Blob());
  });
}

it("downloads all parts of a log as one file", async () => {
  const saved: Blob[] = [];
  const names: string[] = [];
  vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => {
    saved.push(blob as Blob);
    return "blob:log";
  });
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
    names.push(this.download);
  });
  server.use(
    http.get("*/teams/lab/runs/run_1/logs/2/rank-0.log", ({ request }) => {
      const offset = Number(new URL(request.url).searchParams.get("offset"));
      return HttpResponse.json({ text: PARTS[offset / 12], offset, next_offset: offset + 12, end: offset > 0 });
    }),
  );
  await userEvent.click(await showPanel());
  await waitFor(() => {
    expect(names).toEqual(["run_1-attempt-2-rank-0.log"]);
  });
  expect(saved.length).toBe(1);
  expect(await textOf(saved[0])).toBe(PARTS.join(""));
});

it("says why a log could not be downloaded", async () => {
  server.use(
    http.get("*/teams/lab/runs/run_1/logs/2/rank-0.log", () =>
      HttpResponse.json({ title: "No such log", status: 404, code: "not_found", detail: "Run run_1 has no log rank-0.log." }, { status: 404 }),
    ),
  );
  await userEvent.click(await showPanel());
  expect(await screen.findByText("Run run_1 has no log rank-0.log.")).toBeDefined();
});
