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

it("saves the present view under a name, chooses and deletes it", async () => {
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

it("restores the address of a view", () => {
  const search = { q: "night", mine: true, sort: "created", order: "asc", group: "tag" } as const;
  expect(searchOfView(viewOfSearch(search))).toEqual(search);
  expect(searchOfView(viewOfSearch({}))).toEqual({});
  expect(isSameView(VIEW, { ...VIEW, columns: ["time", "loss"] })).toBe(true);
  expect(isSameView(VIEW, { ...VIEW, group: null })).toBe(false);
});
