import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { useState } from "react";
import { expect, it, vi } from "vitest";
import type { RunEvent } from "@/api/types";
import { filterEvents, parseEventFilter, type EventFilter } from "@/features/runs/detail/eventFilter";
import { EventsTab } from "@/features/runs/detail/EventsTab";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const at = { time: "2026-11-21T13:00:00Z", attempt: 1, step: null };
const EVENTS = [
  { ...at, sequence: 1, type: "state", state: "queued", message: "waiting for 2 slots" },
  { ...at, sequence: 2, type: "state", state: "running", message: "attempt 1 on node-7" },
  { ...at, sequence: 3, type: "checkpoint_saved", state: null, step: 50, message: "saved step 50" },
  { ...at, sequence: 4, type: "note", state: null, message: "the loss of step 61 is not finite" },
];

it("filters events by kind and words, keeps the filter in the address, and clears it", async () => {
  server.use(http.get("*/runs/run_1/events", () => HttpResponse.json({ items: EVENTS })));
  const onView = vi.fn();
  renderRoute(<InAddress onView={onView} />);
  await screen.findByText("Saved step 50");
  expect(messages()).toHaveLength(4);
  await userEvent.click(within(screen.getByRole("radiogroup", { name: "Kind of events" })).getByRole("radio", { name: "states" }));
  expect(messages()).toEqual([expect.stringContaining("Attempt 1 on node-7"), expect.stringContaining("Waiting for 2 slots")]);
  await userEvent.type(screen.getByRole("searchbox"), "NODE-7 running");
  expect(messages()).toEqual([expect.stringContaining("Attempt 1 on node-7")]);
  expect(screen.getByRole("status").textContent).toContain("1 of 4 events");
  await waitFor(() => {
    expect(onView).toHaveBeenLastCalledWith({ events: "states", words: "NODE-7 running" });
  });
  await userEvent.type(screen.getByRole("searchbox"), " 61");
  expect(screen.getByRole("status").textContent).toBe("No matching events.");
  await userEvent.click(screen.getByRole("button", { name: "Show all events" }));
  expect(messages()).toHaveLength(4);
  await waitFor(() => {
    expect(onView).toHaveBeenLastCalledWith({ events: undefined, words: undefined });
  });
});

it("tells kinds of events apart", () => {
  const shown = (events: EventFilter["events"]) => filterEvents(EVENTS as RunEvent[], { events }).map(({ sequence }) => sequence);
  expect([shown("states"), shown("checkpoints"), shown("other"), shown(undefined)]).toEqual([[1, 2], [3], [4], [1, 2, 3, 4]]);
});

it("reads the filter from an address, also a number, and ignores what it does not know", () => {
  expect(parseEventFilter({ events: "checkpoints", words: 61 })).toEqual({ events: "checkpoints", words: "61" });
  expect(parseEventFilter({ events: "sounds", words: ["a"] })).toEqual({});
});

function InAddress({ onView }: { onView: (view: EventFilter) => void }) {
  const [view, setView] = useState<EventFilter>({});
  return (
    <EventsTab
      team="lab"
      run="run_1"
      live={false}
      view={view}
      onView={(next) => {
        setView(next);
        onView(next);
      }}
    />
  );
}

function messages(): string[] {
  return screen.queryAllByRole("listitem").map(({ textContent }) => textContent);
}
