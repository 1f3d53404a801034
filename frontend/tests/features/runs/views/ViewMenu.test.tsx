import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { RunView, SavedView } from "@/api/types";
import { ViewMenu } from "@/features/runs/views/ViewMenu";
import { isSameView, searchOfView, viewOfSearch } from "@/features/runs/views/views";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const VIEW: RunView = viewOfSearch({ state: ["failed"], tag: ["a"], sort: "loss", order: "asc", columns: "loss,time", group: "dataset" });

it("saves the current view under a name, selects and deletes it", async () => {
  let views: SavedView[] = [];
  const chosen: RunView[] = [];
  server.use(
    http.get("*/api/v1/teams/lab/views", () => HttpResponse.json({ items: views, next_cursor: null })),
    http.post("*/api/v1/teams/lab/views", async ({ request }) => {
      const { name, view } = (await request.json()) as { name: string; view: RunView };
      views = [{ id: "view_1", name, view, saved: "2026-11-21T13:00:00Z" }];
      return HttpResponse.json(views[0], { status: 201 });
    }),
    http.delete("*/api/v1/teams/lab/views/view_1", () => {
      views = [];
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(<ViewMenu team="lab" view={VIEW} onChoose={(view) => chosen.push(view)} />);
  await userEvent.click(await screen.findByRole("button", { name: "Views" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Save this view…" }));
  await userEvent.type(await screen.findByLabelText("Name of the view"), "Failed ones");
  await userEvent.click(screen.getByRole("button", { name: "Save view" }));
  await userEvent.click(await screen.findByRole("button", { name: "View Failed ones" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: /^Failed ones/ }));
  expect(chosen).toEqual([VIEW]);
  await userEvent.click(screen.getByRole("button", { name: "View Failed ones" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Delete Failed ones…" }));
  await userEvent.click(await screen.findByRole("button", { name: "Delete view" }));
  await waitFor(() => {
    expect(views).toEqual([]);
  });
});

it("says that a view of the same name is replaced, and why a name was refused", async () => {
  const saved: SavedView = { id: "view_1", name: "Failed ones", view: viewOfSearch({}), saved: "2026-11-21T13:00:00Z" };
  const refusal = { title: "Conflict", status: 409, code: "too_many_views", detail: "You have 50 views. Delete some.", request_id: "r", errors: [] };
  server.use(
    http.get("*/api/v1/teams/lab/views", () => HttpResponse.json({ items: [saved], next_cursor: null })),
    http.post("*/api/v1/teams/lab/views", () => HttpResponse.json(refusal, { status: 409 })),
  );
  renderRoute(<ViewMenu team="lab" view={VIEW} onChoose={() => undefined} />);
  await userEvent.click(await screen.findByRole("button", { name: "Views" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Save this view…" }));
  await userEvent.type(await screen.findByLabelText("Name of the view"), "Failed ones");
  expect(screen.getByText("This replaces your view with the same name.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Replace view" }));
  expect(await screen.findByText("You have 50 views. Delete some.")).toBeDefined();
  expect(screen.getByLabelText<HTMLInputElement>("Name of the view").value).toBe("Failed ones");
});

it("restores the address of a view", () => {
  const search = { q: "night", mine: true, sort: "created", order: "asc", group: "tag" } as const;
  expect(searchOfView(viewOfSearch(search))).toEqual(search);
  expect(searchOfView(viewOfSearch({}))).toEqual({});
  expect(isSameView(VIEW, { ...VIEW, columns: ["time", "loss"] })).toBe(true);
  expect(isSameView(VIEW, { ...VIEW, group: null })).toBe(false);
});
