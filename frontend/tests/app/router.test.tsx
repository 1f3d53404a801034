import { act, screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { router } from "@/app/router";
import { openApp } from "@tests/support/app";
import { aDataset } from "@tests/support/datasets";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "owner" }] };
const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such run." };
const REFUSED = { title: "Not allowed", status: 403, code: "forbidden", detail: "Only site admins see nodes." };

it("names each page in the title, and offers a way out of missing pages", async () => {
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/nodes", () => HttpResponse.json(REFUSED, { status: 403 })),
    http.get("*/api/v1/teams/lab/runs", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.get("*/api/v1/teams/lab/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab/runs");
  await waitFor(() => {
    expect(document.title).toBe("Runs · lab · Trainwright");
  });

  act(() => {
    router.history.push("/lab/nonsense");
  });
  await screen.findByRole("heading", { name: "Page not found" });
  expect(screen.getByRole("link", { name: "Datasets" })).toBeDefined();
  expect(screen.getAllByRole("main")).toHaveLength(1);

  act(() => {
    router.history.push("/lab/runs/run_gone/overview");
  });
  await screen.findByText("There is no such run.");
  expect(screen.getByRole("heading", { name: "Run not found" })).toBeDefined();
  expect(screen.queryByRole("alert")).toBeNull();
  expect(screen.getByRole("link", { name: "Go to your runs" }).getAttribute("href")).toBe("/lab/runs");
  expect(screen.queryByRole("button", { name: "Try again" })).toBeNull();

  act(() => {
    router.history.push("/lab/datasets/ds_gone");
  });
  expect(await screen.findByRole("heading", { name: "Dataset not found" })).toBeDefined();

  act(() => {
    router.history.push("/lab/nodes");
  });
  await screen.findByText("Only site admins can see nodes.");
  expect(screen.queryByRole("alert")).toBeNull();
  expect(screen.queryByRole("button", { name: "Try again" })).toBeNull();
});

it("frames an address outside of all teams as for people who are signed out", async () => {
  await openApp("/link/a/b");
  expect(await screen.findByRole("heading", { name: "Page not found" })).toBeDefined();
  expect(screen.getByText("Trainwright")).toBeDefined();
  expect(screen.queryByText("Go to your runs")).toBeNull();
  expect(screen.getByRole("link", { name: "Go to the start page" }).getAttribute("href")).toBe("/");
});

it("marks More on phones while a page of its menu is open", async () => {
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab/queue");
  const more = await screen.findByRole("button", { name: "More" });
  expect(more.getAttribute("aria-current")).toBe("page");
  act(() => {
    router.history.push("/lab/datasets");
  });
  await waitFor(() => {
    expect(more.getAttribute("aria-current")).toBeNull();
  });
});

it("says that there is no such team, beside the person's own, and shows a team that they have just been added to", async () => {
  const teams = [...ME.teams];
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json({ ...ME, teams })),
    http.get("*/api/v1/teams/*/runs", () => HttpResponse.json({ items: [], next_cursor: null })),
    http.get("*/api/v1/teams/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/other/runs");
  expect(await screen.findByText(/There is no team “other”, or you are not in it/)).toBeDefined();
  expect(screen.queryByRole("search")).toBeNull();
  expect(screen.getByRole("link", { name: "Datasets" }).getAttribute("href")).toBe("/lab/datasets");

  teams.push({ slug: "other", name: "Other", role: "viewer" });
  act(() => {
    router.history.push("/other/queue");
  });
  act(() => {
    router.history.push("/other/runs");
  });
  expect(await screen.findByRole("search", { name: "Runs" })).toBeDefined();
});

it("opens the run and the dataset that an address names, if only one has the name", async () => {
  const runs = [aRun({ id: "run_b", name: "pilot-7" }), aRun({ id: "run_a", name: "pilot" }), aRun({ id: "run_c", name: "probe" }), aRun({ id: "run_d", name: "probe" })];
  const asked: (string | null)[] = [];
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/teams/lab/runs", ({ request }) => {
      const q = new URL(request.url).searchParams.get("q");
      asked.push(q);
      return HttpResponse.json({ items: runs.filter(({ name }) => name.includes(q ?? "")), next_cursor: null });
    }),
    http.get("*/api/v1/teams/lab/datasets", () => HttpResponse.json({ items: [aDataset({ id: "ds_a", name: "short stories" })], next_cursor: null })),
    http.get("*/api/v1/teams/lab/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab/runs/pilot");
  await waitFor(() => {
    expect(router.state.location.pathname).toBe("/lab/runs/run_a/overview");
  });
  expect(asked).toContain("pilot");

  act(() => {
    router.history.push("/lab/runs/pilot/logs?file=rank-0.log");
  });
  await waitFor(() => {
    expect(router.state.location.href).toBe("/lab/runs/run_a/logs?file=rank-0.log");
  });

  act(() => {
    router.history.push("/lab/datasets/short%20stories");
  });
  await waitFor(() => {
    expect(router.state.location.pathname).toBe("/lab/datasets/ds_a");
  });

  for (const name of ["probe", "gone"]) {
    act(() => {
      router.history.push(`/lab/runs/${name}`);
    });
    await waitFor(() => {
      expect(router.state.location.pathname).toBe(`/lab/runs/${name}/overview`);
      expect(screen.getByRole("heading", { name: "Run not found" })).toBeDefined();
    });
    expect(screen.getByRole("link", { name: "Go to your runs" }).getAttribute("href")).toBe("/lab/runs");
  }
});
