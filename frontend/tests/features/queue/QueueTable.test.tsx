import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { QueuedRun } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { prioritiesOf, swapWith } from "@/features/queue/queueMoves";
import { QueueTable } from "@/features/queue/QueueTable";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

function waiting(id: string, differs: Partial<QueuedRun> = {}): QueuedRun {
  return {
    id,
    name: id,
    created_by: "Ben",
    mine: true,
    device: "cpu",
    slots: 2,
    priority: "normal",
    position: 1,
    sentence: `${id} waits`,
    queued: "2026-01-01T00:00:00Z",
    start_is_rough: false,
    ...differs,
  };
}

const QUEUE = [waiting("a"), waiting("b", { mine: false }), waiting("c"), waiting("d", { priority: "low" }), waiting("e", { device: "cuda" })];

it("lets editors swap their own runs and owners all runs, within a priority and device", () => {
  const [a, b, c, d, e] = QUEUE as [QueuedRun, QueuedRun, QueuedRun, QueuedRun, QueuedRun];
  expect(swapWith(QUEUE, c, "up", "editor")).toEqual(["c", "a"]);
  expect(swapWith(QUEUE, a, "down", "editor")).toEqual(["c", "a"]);
  expect(swapWith(QUEUE, c, "up", "owner")).toEqual(["c", "b"]);
  for (const run of [b, d, e]) expect(swapWith(QUEUE, run, "up", "editor")).toBeNull();
  expect(swapWith(QUEUE, c, "down", "owner")).toBeNull();
  expect(swapWith(QUEUE, c, "up", "viewer")).toBeNull();
});

it("offers editors no high priority, but shows that of a run", () => {
  expect(prioritiesOf("editor", "normal")).toEqual(["low", "normal"]);
  expect(prioritiesOf("editor", "high")).toEqual(["low", "normal", "high"]);
  expect(prioritiesOf("owner", "low")).toEqual(["low", "normal", "high"]);
});

it("shows what each run waits for, moves a run, and changes its priority", async () => {
  const sent: unknown[] = [];
  server.use(
    http.get("*/api/v1/teams/lab/queue", () => HttpResponse.json({ items: [waiting("a"), waiting("c", { position: 2 })], next_cursor: null })),
    http.put("*/api/v1/teams/lab/queue/order", async ({ request }) => {
      const body = await request.json();
      sent.push(body);
      return HttpResponse.json(body as object);
    }),
    http.patch("*/api/v1/teams/lab/runs/a", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({});
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <QueueTable team="lab" memberRole="editor" />
    </AsyncBoundary>,
  );
  expect(await screen.findByText("c waits")).toBeDefined();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Move a up, place 1" }).disabled).toBe(true);
  await userEvent.click(screen.getByRole("button", { name: "Move c up, place 2" }));
  await userEvent.selectOptions(screen.getByLabelText("Priority of a, place 1"), "low");
  await waitFor(() => {
    expect(sent).toEqual([{ runs: ["c", "a"] }, { priority: "low" }]);
  });
});

it("says when a run is expected to start, and whether that is rough", async () => {
  const start = { expected_start: "2026-01-02T00:00:00Z" };
  const items = [waiting("a", start), waiting("b", { ...start, start_is_rough: true }), waiting("c")];
  server.use(http.get("*/api/v1/teams/lab/queue", () => HttpResponse.json({ items, next_cursor: null })));
  renderRoute(
    <AsyncBoundary>
      <QueueTable team="lab" memberRole="editor" />
    </AsyncBoundary>,
  );
  const rows = (await screen.findAllByRole("row")).slice(1).map((row) => row.textContent);
  expect(rows.map((row) => row.includes("expected start: ")), "beside the sentence, for phones").toEqual([true, true, false]);
  expect(rows.map((row) => row.includes("about"))).toEqual([false, true, false]);
  expect(rows.map((row) => row.includes("not known"))).toEqual([false, false, true]);
});

it("leaves room for the runs in narrow windows: who submitted them and when goes first", async () => {
  server.use(http.get("*/api/v1/teams/lab/queue", () => HttpResponse.json({ items: [waiting("a")], next_cursor: null })));
  renderRoute(
    <AsyncBoundary>
      <QueueTable team="lab" memberRole="editor" />
    </AsyncBoundary>,
  );
  const heads = await screen.findAllByRole("columnheader");
  expect(heads.filter(({ className }) => className.includes("max-desk:hidden")).map(({ textContent }) => textContent)).toEqual(["by", "since"]);
});

it("tells waiting runs of one name apart by the end of their id", async () => {
  const items = [waiting("run_aaaaa1", { name: "pilot" }), waiting("run_aaaaa2", { name: "pilot", position: 2 })];
  server.use(http.get("*/api/v1/teams/lab/queue", () => HttpResponse.json({ items, next_cursor: null })));
  renderRoute(
    <AsyncBoundary>
      <QueueTable team="lab" memberRole="editor" />
    </AsyncBoundary>,
  );
  expect(await screen.findByRole("link", { name: "pilot (aaaa1)" })).toBeDefined();
  expect(screen.getByRole("link", { name: "pilot (aaaa2)" })).toBeDefined();
});
