import { render, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { describe, expect, it, vi } from "vitest";
import type { BulkAction, Run } from "@/api/types";
import { BulkActions } from "@/features/runs/actions/BulkActions";
import { eligibleRuns } from "@/features/runs/actions/bulkRequests";
import { EditRun } from "@/features/runs/actions/EditRun";
import { RunActions } from "@/features/runs/actions/RunActions";
import { TagRuns } from "@/features/runs/actions/TagRuns";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const RUN = "*/api/v1/teams/lab/runs/run_1";

function many(count: number, change: Partial<Run> = {}): Run[] {
  return Array.from({ length: count }, (_, index) => aRun({ id: `run_${index}`, name: `pilot-${index}`, ...change }));
}

describe("actions on many runs", () => {
  /** Like the API, accepts at most 200 at once. The last run of all is refused. */
  function bulk(last: string): BulkAction[] {
    const actions: BulkAction[] = [];
    server.use(
      http.post("*/api/v1/teams/lab/runs/bulk", async ({ request }) => {
        const action = (await request.json()) as BulkAction;
        actions.push(action);
        if (action.runs.length > 200) return HttpResponse.json({ code: "invalid_request", detail: "At most 200 runs." }, { status: 422 });
        const done = (run: string) => (run === last ? { run, done: false, code: "run_is_final", detail: "It has ended." } : { run, done: true });
        return HttpResponse.json(action.runs.map(done));
      }),
    );
    return actions;
  }

  function show(runs: Run[], onCompare = vi.fn()) {
    renderRoute(<BulkActions team="lab" runs={runs} canEdit onCompare={onCompare} onClear={() => undefined} />);
  }

  it("are sent in several requests if necessary, with one list of failures", async () => {
    const actions = bulk("run_299");
    show(many(300));
    await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
    expect((await screen.findByRole("alert")).textContent).toContain("Failed for 1 of 300 runs");
    expect(screen.getByText("It has ended.")).toBeDefined();
    expect(actions.map(({ runs }) => runs.length)).toEqual([200, 100]);
  });

  it("report their progress and failures if a later request fails", async () => {
    let asked = 0;
    const refused = [{ run: "run_7", done: false, code: "run_is_final", detail: "It has ended." }];
    server.use(
      http.post("*/api/v1/teams/lab/runs/bulk", () =>
        ++asked === 1 ? HttpResponse.json(refused) : HttpResponse.json({ code: "busy", detail: "The database is busy." }, { status: 503 }),
      ),
    );
    show(many(300));
    await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
    const alerts = (await screen.findAllByRole("alert")).map(({ textContent }) => textContent);
    expect(alerts[0]).toContain("200 of 300 runs sent, then stopped: The database is busy.");
    expect(alerts[1]).toContain("Failed for 1 run");
    expect(alerts[1]).toContain("pilot-7 It has ended.");
  });

  it("calculate freed space with few concurrent requests, and delete what can be deleted", async () => {
    const actions = bulk("");
    let open = 0;
    let most = 0;
    server.use(
      http.delete("*/api/v1/teams/lab/runs/:run", async ({ params }) => {
        most = Math.max(most, ++open);
        await new Promise((done) => setTimeout(done));
        open -= 1;
        if (params["run"] === "run_7") return HttpResponse.json({ code: "checkpoint_forked", detail: "A fork needs it." }, { status: 409 });
        return HttpResponse.json({ dry_run: true, bytes: 2 ** 20, checkpoints: 1 });
      }),
    );
    show(many(210, { state: "failed" }));
    await userEvent.click(await screen.findByRole("button", { name: "Delete" }));
    const dialog = screen.getByRole("dialog");
    expect(await within(dialog).findByText(/This frees 209 MiB \(209 checkpoints\)/, {}, { timeout: 30_000 })).toBeDefined();
    expect(within(dialog).getByText("pilot-7 cannot be deleted.").parentElement?.textContent).toContain("A fork needs it.");
    expect(most).toBeLessThanOrEqual(4);
    await userEvent.click(within(dialog).getByRole("button", { name: "Delete 209 runs" }));
    await waitFor(() => {
      expect(actions.map(({ runs }) => runs.length)).toEqual([200, 9]);
    });
  });

  it("compare up to a hundred runs", async () => {
    show(many(101));
    expect(await screen.findByText("You can compare up to 100 runs.")).toBeDefined();
    expect(screen.queryByRole("button", { name: "Compare" })).toBeNull();
  });
});

describe("a stopping run", () => {
  const stopping = (verdict: Run["verdict"]) => aRun({ state: "stopping", verdict });

  it("can be paused if it will be retried, but not if it is ending or pausing", async () => {
    for (const [verdict, offered] of [["retry", true], ["move", true], ["pause", false], ["fail", false], ["cancel", false]] as const) {
      const run = stopping(verdict);
      expect(eligibleRuns("pause", [run])).toEqual(offered ? [run] : []);
      const page = renderRoute(<RunActions team="lab" run={run} onRefused={() => undefined} onDeleted={() => undefined} />);
      await screen.findByRole("button", { name: "More actions" });
      expect(screen.queryByRole("button", { name: "Pause" }) !== null).toBe(offered);
      page.unmount();
    }
  });
});

describe("the question before a run is cancelled or deleted", () => {
  it.each([
    ["Cancel run", aRun(), "Cancel pilot-7 run_1?"],
    ["Delete run", aRun({ state: "failed" }), "Delete pilot-7 run_1?"],
  ])("says which run it is about: %s", async (action, run, question) => {
    server.use(http.delete(RUN, () => HttpResponse.json({ dry_run: true, bytes: 0, checkpoints: 0 })));
    renderRoute(<RunActions team="lab" run={run} onRefused={() => undefined} onDeleted={() => undefined} />);
    await userEvent.click(await screen.findByRole("button", { name: "More actions" }));
    await userEvent.click(await screen.findByRole("menuitem", { name: action }));
    expect(await screen.findByRole("dialog", { name: question })).toBeDefined();
  });
});

describe("tags of several runs", () => {
  it("are saved once, although Enter is pressed again", async () => {
    const save = vi.fn();
    const dialog = (busy: boolean) => <TagRuns runs={many(2)} busy={busy} error={null} onSave={save} onClose={() => undefined} />;
    const { rerender } = render(dialog(false));
    await userEvent.type(screen.getByLabelText("New tags"), "night{Enter}");
    rerender(dialog(true));
    await userEvent.keyboard("{Enter}");
    expect(save).toHaveBeenCalledOnce();
  });
});

describe("a run on two nodes", () => {
  it("can be moved off each of them, unless it is about to leave them", async () => {
    const asked: unknown[] = [];
    server.use(
      http.post(`${RUN}/move`, async ({ request }) => {
        asked.push(await request.json());
        return HttpResponse.json(aRun({ state: "stopping", verdict: "move", nodes: ["node-b", "node-c"] }));
      }),
    );
    const run = aRun({ state: "running", nodes: ["node-b", "node-c"] });
    const page = renderRoute(<RunActions team="lab" run={run} onRefused={() => undefined} onDeleted={() => undefined} />);
    await userEvent.click(await screen.findByRole("button", { name: "More actions" }));
    expect(screen.getByRole("menuitem", { name: "Move off node-b" })).toBeDefined();
    await userEvent.click(screen.getByRole("menuitem", { name: "Move off node-c" }));
    await waitFor(() => {
      expect(asked).toEqual([{ node: "node-c" }]);
    });
    page.unmount();
    const leaving = { ...run, state: "stopping", verdict: "move" } as const;
    renderRoute(<RunActions team="lab" run={leaving} onRefused={() => undefined} onDeleted={() => undefined} />);
    await userEvent.click(await screen.findByRole("button", { name: "More actions" }));
    expect(screen.queryByRole("menuitem", { name: /Move off/ })).toBeNull();
  });
});

describe("name, tags and notes", () => {
  const opened = aRun({ tags: ["night", "old"], notes: "first" });

  async function edit(now: Run, change: () => Promise<void>): Promise<unknown[]> {
    const sent: unknown[] = [];
    const closed = vi.fn();
    server.use(
      http.get(RUN, () => HttpResponse.json(now)),
      http.patch(RUN, async ({ request }) => {
        sent.push(await request.json());
        return HttpResponse.json(now);
      }),
    );
    const page = renderRoute(<EditRun team="lab" run={opened} onSaved={() => undefined} onClose={closed} />);
    await screen.findByLabelText("Name");
    await change();
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(closed).toHaveBeenCalledOnce();
    });
    page.unmount();
    return sent;
  }

  it("sends only changed fields, and nothing if none changed", async () => {
    const name = () => userEvent.type(screen.getByLabelText("Name"), " b");
    expect(await edit(opened, name)).toEqual([{ name: "pilot-7 b" }]);
    expect(await edit(opened, () => Promise.resolve())).toEqual([]);
  });

  it("keeps tags that others added, and does not restore tags that they removed", async () => {
    const now = aRun({ tags: ["old", "theirs"], notes: "second" });
    const tags = async () => {
      await userEvent.clear(screen.getByLabelText("Tags"));
      await userEvent.type(screen.getByLabelText("Tags"), "night mine");
    };
    expect(await edit(now, tags)).toEqual([{ tags: ["theirs", "mine"] }]);
  });
});
