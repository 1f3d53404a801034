import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { EventList } from "@/features/runs/detail/EventList";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("says why the events could not be loaded, and retries", async () => {
  const event = { sequence: 1, time: "2026-11-21T13:00:00Z", type: "state", state: "queued", message: "needs 2 slots" };
  server.use(
    http.get("*/runs/run_1/events", () => HttpResponse.json({ code: "busy", detail: "The database is busy. Wait a second." }, { status: 503 }), { once: true }),
    http.get("*/runs/run_1/events", () => HttpResponse.json({ items: [event] })),
  );
  renderRoute(<EventList team="lab" run="run_1" live={false} />);
  expect((await screen.findByRole("alert")).textContent).toContain("The database is busy.");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByText("needs 2 slots")).toBeDefined();
});
