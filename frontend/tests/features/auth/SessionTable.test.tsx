import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { SessionTable } from "@/features/auth/SessionTable";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const times = { created: "2026-11-20T08:00:00Z", expires: "2026-12-04T08:00:00Z", address: "192.0.2.7", last_used: "2026-11-21T08:00:00Z" };

it("signs other browsers out, and not this one", async () => {
  let sessions = [
    { id: "session_1", ...times, device: "Firefox on Linux", provider: "Lab login", current: true },
    { id: "session_2", ...times, device: "", last_used: null, provider: "", current: false },
  ];
  const ended: string[] = [];
  server.use(
    http.get("*/api/v1/me/sessions", () => HttpResponse.json(sessions)),
    http.delete("*/api/v1/me/sessions/:id", ({ params }) => {
      ended.push(String(params.id));
      sessions = sessions.filter(({ id }) => id !== params.id);
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <SessionTable />
    </AsyncBoundary>,
  );
  const table = await screen.findByRole("region", { name: "Browsers" });
  expect(within(table).getByText("This browser")).toBeDefined();
  const rows = within(table).getAllByRole("row").slice(1);
  expect(rows.map((row) => within(row).getAllByRole("cell")[0]?.textContent)).toEqual(["Firefox on Linuxsigned in with Lab login", "Unknown"]);
  await userEvent.click(within(table).getByRole("button", { name: "Sign out" }));
  await waitFor(() => {
    expect(within(table).queryByRole("button", { name: "Sign out" })).toBeNull();
  });
  expect(ended).toEqual(["session_2"]);
});
