import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { EventList } from "@/features/runs/detail/EventList";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("shows why the events could not be loaded, and retries", async () => {
  const event = { sequence: 1, time: "2026-11-21T13:00:00Z", type: "state", state: "queued", message: "needs 2 slots" };
  server.use(
    http.get("*/runs/run_1/events", () => HttpResponse.json({ code: "busy", detail: "The database is busy. Wait a second." }, { status: 503 }), { once: true }),
    http.get("*/runs/run_1/events", () => HttpResponse.json({ items: [event] })),
  );
  renderRoute(<EventList team="lab" run="run_1" live={false} />);
  expect((await screen.findByRole("alert")).textContent).toContain("The database is busy.");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByText("Needs 2 slots")).toBeDefined();
});

it("shows repeated events as one line that opens, and changes of state one by one", async () => {
  const at = "2026-11-21T13:00:00Z";
  const saved = (sequence: number, step: number) => ({ sequence, time: at, type: "checkpoint_saved", state: null, attempt: 1, step, message: `saved step ${step} (8.0 MiB in 0.05 s)` });
  const moved = (sequence: number, state: string) => ({ sequence, time: at, type: "state", state, attempt: 1, step: null, message: `now ${state}` });
  const events = [moved(1, "starting"), moved(2, "running"), ...Array.from({ length: 10 }, (_, n) => saved(3 + n, 50 * (n + 1))), moved(13, "completing"), saved(14, 550)];
  server.use(http.get("*/runs/run_1/events", () => HttpResponse.json({ items: events })));
  renderRoute(<EventList team="lab" run="run_1" live={false} />);
  expect(await screen.findByText(/Saved 10 checkpoints, steps 50 to 500\./)).toBeDefined();
  expect(screen.getAllByRole("listitem")).toHaveLength(5);
  expect(screen.queryByText(/Saved step 300/)).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Show each" }));
  expect(screen.getByText(/Saved step 300/)).toBeDefined();
  expect(screen.getAllByRole("listitem")).toHaveLength(15);
});

it("shows the state of an event and its reason once", async () => {
  const at = { time: "2026-11-21T13:00:00Z", type: "state", attempt: 1, step: null };
  const events = [
    { ...at, sequence: 1, state: "stopping", message: "Paused by Ada" },
    { ...at, sequence: 2, type: "note", state: null, message: "saved step 4" },
    { ...at, sequence: 3, state: "paused", message: "Paused by Ada" },
    { ...at, sequence: 4, state: "stopping", message: "Training diverged." },
    { ...at, sequence: 5, state: "failed", message: "Training diverged." },
  ];
  server.use(http.get("*/runs/run_1/events", () => HttpResponse.json({ items: events })));
  renderRoute(<EventList team="lab" run="run_1" live={false} />);
  await screen.findByText(/^by Ada/);
  const words = [/Failed.*Training diverged\.$/, /Stopping$/, /Paused.*by Ada$/, /Saved step 4$/, /Stopping.*to pause, asked by Ada$/];
  expect(screen.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual(words.map((word): unknown => expect.stringMatching(word)));
});

it("shows the newest events of a run with more than a page of them", async () => {
  const all = Array.from({ length: 1_500 }, (_, index) => ({
    sequence: index + 1,
    time: "2026-11-21T13:00:00Z",
    type: "state",
    state: "running",
    message: `start ${index + 1}`,
  }));
  server.use(
    http.get("*/runs/run_1/events", ({ request }) => {
      const asked = new URL(request.url).searchParams;
      const after = Number(asked.get("cursor") ?? asked.get("after"));
      const end = after + Number(asked.get("limit"));
      return HttpResponse.json({ items: all.slice(after, end), next_cursor: end < all.length ? String(end) : null });
    }),
  );
  renderRoute(<EventList team="lab" run="run_1" live={false} limit={2} />);
  expect(await screen.findByText("Start 1500")).toBeDefined();
  expect(screen.getAllByRole("listitem")).toHaveLength(2);
});
