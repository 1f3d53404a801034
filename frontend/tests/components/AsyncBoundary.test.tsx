import { queryOptions, useSuspenseQuery } from "@tanstack/react-query";
import { act, screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, expect, it, vi } from "vitest";
import { request } from "@/api/client";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { connection } from "@/lib/connection";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const letters = queryOptions({ queryKey: ["letters"], queryFn: async () => (await request(`${location.origin}/letters`)).text() });

function Letters() {
  return useSuspenseQuery(letters).data;
}

afterEach(() => {
  connection.restored();
});

it("keeps the skeleton while the server does not respond, and loads once it does", async () => {
  const log = vi.spyOn(console, "error").mockImplementation(() => undefined);
  server.use(http.get("*/letters", () => HttpResponse.error()));
  renderRoute(
    <AsyncBoundary skeleton={<p>outline</p>}>
      <Letters />
    </AsyncBoundary>,
  );
  await waitFor(() => {
    expect(log, "React logs the error once the boundary has it").toHaveBeenCalled();
  });
  expect(screen.getByText("outline")).toBeDefined();
  expect(screen.queryByRole("button", { name: "Try again" })).toBeNull();
  server.use(http.get("*/letters", () => HttpResponse.text("abc")));
  act(() => {
    connection.restored();
  });
  expect(await screen.findByText("abc")).toBeDefined();
  vi.restoreAllMocks();
});

it("shows an error that is not about the connection", async () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  server.use(http.get("*/letters", () => HttpResponse.json({ detail: "It broke." }, { status: 500 })));
  renderRoute(
    <AsyncBoundary>
      <Letters />
    </AsyncBoundary>,
  );
  expect((await screen.findByRole("alert")).textContent).toBe("It broke.");
  expect(screen.getByRole("button", { name: "Try again" })).toBeDefined();
  vi.restoreAllMocks();
});
