import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { useState } from "react";
import { expect, it, vi } from "vitest";
import type { RunGroup } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { ExportMenu } from "@/features/runs/list/ExportMenu";
import { GroupedRuns } from "@/features/runs/list/GroupedRuns";
import { GroupMenu } from "@/features/runs/list/GroupMenu";
import { DEFAULT_COLUMNS } from "@/features/runs/list/runColumns";
import { parseRunsSearch, type RunFilter, type RunGrouping } from "@/features/runs/list/runFilter";
import { groupRows, groupText } from "@/features/runs/list/runGroups";
import { exportUrl } from "@/features/runs/queries";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

function aGroup(key: string, more: Partial<RunGroup> = {}): RunGroup {
  return { key, name: key, runs: 2, live: 0, best_loss: null, newest: "2026-11-21T13:00:00Z", ...more };
}

function Grouped({ grouping, filter }: { grouping: RunGrouping; filter: RunFilter }) {
  const [open, setOpen] = useState<string | undefined>();
  const noop = () => undefined;
  return (
    <AsyncBoundary>
      <GroupedRuns team="lab" grouping={grouping} filter={filter} open={open} onOpen={setOpen} columns={DEFAULT_COLUMNS} selecting={false} pages={1} onPages={noop} onFilter={noop} onClear={noop} empty={<p>Nothing here</p>} />
    </AsyncBoundary>
  );
}

it("lists the runs of the open group", async () => {
  const asked: string[] = [];
  server.use(
    http.get("*/api/v1/teams/lab/runs/groups", ({ request }) => {
      asked.push(new URL(request.url).search);
      return HttpResponse.json({ items: [aGroup("ds_1", { name: "letters", runs: 1, live: 1, best_loss: 2.5 }), aGroup("ds_2", { name: "news" })], next_cursor: null });
    }),
    http.get("*/api/v1/teams/lab/runs", ({ request }) => {
      asked.push(new URL(request.url).search);
      return HttpResponse.json({ items: [aRun()], next_cursor: null });
    }),
  );
  renderRoute(<Grouped grouping="dataset" filter={{ q: "night" }} />);
  const [letters] = await screen.findAllByRole("heading", { level: 2 });
  expect(letters?.textContent).toBe("letters1 run, 1 unfinished, best loss 2.500");
  await userEvent.click(screen.getByRole("button", { name: /^letters/ }));
  const table = await screen.findByRole("region", { name: "Runs" });
  expect(within(table).getByText("pilot-7")).toBeDefined();
  // Lists are polled, so a slow machine repeats requests.
  expect([...new Set(asked)]).toEqual(["?q=night&group=dataset", expect.stringContaining("q=night&dataset=ds_1")]);
  await userEvent.click(screen.getByRole("button", { name: /^news/ }));
  expect(screen.getByRole("button", { name: /^letters/ }).getAttribute("aria-expanded")).toBe("false");
});

it("opens a single group, which can be closed", async () => {
  server.use(
    http.get("*/api/v1/teams/lab/runs/groups", () => HttpResponse.json({ items: [aGroup("ds_1", { name: "letters" })], next_cursor: null })),
    http.get("*/api/v1/teams/lab/runs", () => HttpResponse.json({ items: [aRun()], next_cursor: null })),
  );
  renderRoute(<Grouped grouping="dataset" filter={{}} />);
  const table = await screen.findByRole("region", { name: "Runs" });
  expect(within(table).getByText("pilot-7")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: /^letters/ }));
  expect(screen.getByRole("button", { name: /^letters/ }).getAttribute("aria-expanded")).toBe("false");
});

it("groups by what the menu offers, and saves all runs that the filter selects as a file", async () => {
  const chosen: (RunGrouping | undefined)[] = [];
  const saved: string[] = [];
  const click = vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
    saved.push(this.getAttribute("href") ?? "");
  });
  renderRoute(
    <>
      <GroupMenu grouping="tag" onChange={(grouping) => chosen.push(grouping)} />
      <ExportMenu team="lab" filter={{ tag: ["a"], sort: "loss" }} />
    </>,
  );
  const choices: Record<string, RunGrouping | undefined> = { "No groups": undefined, state: "state" };
  for (const name of Object.keys(choices)) {
    await userEvent.click(await screen.findByRole("button", { name: "Grouped by tag" }));
    await userEvent.click(await screen.findByRole("menuitem", { name }));
  }
  expect(chosen).toEqual(Object.values(choices));
  for (const name of ["CSV", "Parquet"]) {
    await userEvent.click(screen.getByRole("button", { name: "Export" }));
    await userEvent.click(await screen.findByRole("menuitem", { name }));
  }
  expect(saved).toEqual(["csv", "parquet"].map((format) => `/api/v1/teams/lab/runs/export?format=${format}&tag=a&sort=loss`));
  click.mockRestore();
});

it("shows states that share a label as one group, and runs without a tag", () => {
  const rows = groupRows([aGroup("leased", { runs: 1, live: 1 }), aGroup("starting", { live: 2, best_loss: 3 }), aGroup("failed")], "state", {});
  expect(rows.map(({ label, filter, runs }) => [label, filter.state, runs])).toEqual([
    ["Starting", ["leased", "starting"], 3],
    ["Failed", ["failed"], 2],
  ]);
  expect(rows.map(groupText)).toEqual(["3 runs, 3 unfinished, best loss 3.000", "2 runs"]);
  const tags = groupRows([aGroup("a"), aGroup("")], "tag", { tag: ["b"] });
  expect(tags.map(({ label, filter }) => [label, filter])).toEqual([
    ["a", { tag: ["b", "a"] }],
    ["without a tag", { untagged: true }],
  ]);
  expect(groupRows([aGroup("12x768")], "model", {})[0]?.label).toBe("12 × 768");
});

it("keeps the grouping in the address, and exports what the filter selects", () => {
  expect(parseRunsSearch({ group: "model", open: "12x768" })).toEqual({ group: "model", open: "12x768" });
  expect(parseRunsSearch({ group: "loss", open: "x" })).toEqual({});
  const filter: RunFilter = { state: ["failed", "paused"], tag: ["a b"], mine: true, sort: "loss", order: "asc" };
  expect(exportUrl("lab", filter, "parquet")).toBe(
    "/api/v1/teams/lab/runs/export?format=parquet&state=failed&state=paused&tag=a+b&by=me&sort=loss&order=asc",
  );
});
