import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { useState } from "react";
import { describe, expect, it } from "vitest";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { RunFilterBar } from "@/features/runs/list/RunFilterBar";
import { DEFAULT_COLUMNS } from "@/features/runs/list/runColumns";
import type { RunFilter } from "@/features/runs/list/runFilter";
import { RunTable } from "@/features/runs/list/RunTable";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const RUNS = "*/api/v1/teams/lab/runs";

/** The page's parts, with the filter in a state instead of the address. */
function Runs({ first }: { first: RunFilter }) {
  const [filter, setFilter] = useState(first);
  const [pages, setPages] = useState(1);
  const [selecting, setSelecting] = useState(false);
  const parts = {
    filter,
    selecting,
    onFilter: setFilter,
    onClear: () => {
      setFilter({});
    },
  };
  return (
    <>
      <RunFilterBar {...parts} onSelecting={setSelecting} />
      <AsyncBoundary>
        <RunTable team="lab" {...parts} columns={DEFAULT_COLUMNS} pages={pages} onPages={setPages} empty={<p>Nothing here</p>} />
      </AsyncBoundary>
    </>
  );
}

function show(first: RunFilter = {}) {
  renderRoute(<Runs first={first} />);
}

describe("the runs table", () => {
  it("shows the metrics of a running run, and the sentence of a queued one", async () => {
    const waiting = aRun({ id: "run_2", name: "wide-3b", state: "queued", sentence: "needs 2 slots, 1 free on 1 node", summary: { ...aRun().summary, values: {} } });
    server.use(http.get(RUNS, () => HttpResponse.json({ items: [aRun(), waiting], next_cursor: null })));
    show();
    const [, running, queued] = await screen.findAllByRole("row");
    expect(running?.textContent).toContain("38.2 %");
    expect(running?.textContent).toContain("3.124");
    expect(running?.textContent).toContain("441,000");
    expect(running?.textContent).toContain("1 h 15 min left");
    expect(queued?.textContent).toContain("Queued");
    expect(queued?.textContent).not.toContain("3.124");
    expect(queued?.textContent).toContain("Needs 2 slots, 1 free on 1 node");
  });

  it.each(["paused", "cancelled", "failed"] as const)("shows the metrics and the sentence of a %s run", async (state) => {
    const ended = aRun({ state, sentence: "stopped by Ada at step 427" });
    server.use(http.get(RUNS, () => HttpResponse.json({ items: [ended], next_cursor: null })));
    show();
    const [, row] = await screen.findAllByRole("row");
    for (const text of ["38.2 %", "3.124", "441,000"]) expect(row?.textContent).toContain(text);
    const sentences = screen.getAllByText("Stopped by Ada at step 427");
    expect(sentences.map((sentence) => sentence.closest("td")?.textContent.startsWith("pilot-7"))).toEqual([true, true]);
  });

  it("wraps a sentence on phones, in rows of one height", async () => {
    const sentences = ["Needs 2 slots, 0 free on 1 node", "Waiting"];
    const items = sentences.map((sentence, index) => aRun({ id: `run_${index}`, state: "queued", sentence, summary: { ...aRun().summary, values: {} } }));
    server.use(http.get(RUNS, () => HttpResponse.json({ items, next_cursor: null })));
    show();
    await screen.findAllByText("Waiting");
    for (const sentence of sentences) {
      const onPhone = screen.getAllByText(sentence).find(({ className }) => className.includes("tablet:hidden") && !className.includes("max-tablet:hidden"));
      expect(onPhone?.className).toMatch(/line-clamp-2 h-8/);
    }
  });

  it("can be navigated with j and k", async () => {
    const items = [aRun(), aRun({ id: "run_2", name: "pilot-8" })];
    server.use(http.get(RUNS, () => HttpResponse.json({ items, next_cursor: null })));
    show();
    await screen.findByText("pilot-8");
    await userEvent.keyboard("j");
    expect(document.activeElement?.textContent).toBe("pilot-7");
    await userEvent.keyboard("j");
    expect(document.activeElement?.textContent).toBe("pilot-8");
    await userEvent.keyboard("jk");
    expect(document.activeElement?.textContent).toBe("pilot-7");
  });

  it("shows checkboxes on phones in selection mode only", async () => {
    server.use(http.get(RUNS, () => HttpResponse.json({ items: [aRun()], next_cursor: null })));
    show();
    await userEvent.click(await screen.findByRole("button", { name: "Select" }));
    // In the row of the search field, not in one of its own.
    expect(screen.getByRole("search", { name: "Runs" }).contains(screen.getByRole("button", { name: "Stop selecting" }))).toBe(true);
    const cell = () => screen.getByLabelText("Select pilot-7").closest("td")?.className;
    expect(cell()).not.toContain("hidden");
    await userEvent.click(screen.getByLabelText("Select pilot-7"));
    expect(screen.getByText("1 selected")).toBeDefined();
    await userEvent.click(screen.getByRole("button", { name: "Stop selecting" }));
    expect(screen.queryByText("1 selected")).toBeNull();
    expect(cell()).toContain("max-tablet:hidden");
  });

  it("loads more runs on demand", async () => {
    server.use(
      http.get(RUNS, ({ request }) => {
        const older = new URL(request.url).searchParams.get("cursor") === "c1";
        return HttpResponse.json(
          older
            ? { items: [aRun({ id: "run_0", name: "older" })], next_cursor: null }
            : { items: [aRun()], next_cursor: "c1" },
        );
      }),
    );
    show();
    await userEvent.click(await screen.findByRole("button", { name: "Show more runs" }));
    expect(await screen.findByText("older")).toBeDefined();
    expect(screen.queryByRole("button", { name: "Show more runs" })).toBeNull();
  });

  it("lists a run once if it moved to the next page in between", async () => {
    server.use(
      http.get(RUNS, ({ request }) =>
        HttpResponse.json(
          new URL(request.url).searchParams.get("cursor") === "c1"
            ? { items: [aRun(), aRun({ id: "run_0", name: "older" })], next_cursor: null }
            : { items: [aRun()], next_cursor: "c1" },
        ),
      ),
    );
    show();
    await userEvent.click(await screen.findByRole("button", { name: "Show more runs" }));
    expect(await screen.findByText("older")).toBeDefined();
    expect(screen.getAllByText("pilot-7")).toHaveLength(1);
  });

  it("says when there are no runs", async () => {
    server.use(http.get(RUNS, () => HttpResponse.json({ items: [], next_cursor: null })));
    show();
    expect(await screen.findByText("Nothing here")).toBeDefined();
  });

  it("shows an API error, and retries", async () => {
    server.use(
      http.get(RUNS, () =>
        HttpResponse.json({ title: "Busy", status: 503, code: "busy", detail: "The database is busy. Wait a second." }, { status: 503 }),
        { once: true },
      ),
      http.get(RUNS, () => HttpResponse.json({ items: [aRun()], next_cursor: null })),
    );
    show();
    expect(await screen.findByText("The database is busy. Wait a second.")).toBeDefined();
    await userEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(await screen.findByText("pilot-7")).toBeDefined();
  });
});

describe("the filter", () => {
  const queries: string[] = [];

  function answer(items: (query: URLSearchParams) => ReturnType<typeof aRun>[]) {
    queries.length = 0;
    server.use(
      http.get(RUNS, ({ request }) => {
        const { searchParams } = new URL(request.url);
        searchParams.delete("limit");
        queries.push(searchParams.toString());
        return HttpResponse.json({ items: items(searchParams), next_cursor: null });
      }),
    );
  }

  it("is focused by /, and queries the server after a pause in typing", async () => {
    answer((query) => [aRun({ name: query.get("q") === null ? "pilot-7" : "night-2" })]);
    show();
    await screen.findByText("pilot-7");
    await userEvent.keyboard("/night 2");
    expect(await screen.findByText("night-2")).toBeDefined();
    await waitFor(() => {
      expect(queries[queries.length - 1]).toBe("q=night+2");
    });
    // Fewer than its letters, however busy the machine is.
    expect(queries.length).toBeLessThan(7);
  });

  it("keeps the space between two words, however slowly they are typed", async () => {
    answer((query) => [aRun({ name: query.get("q") ?? "pilot-7" })]);
    show();
    await screen.findByText("pilot-7");
    await userEvent.keyboard("/llama ");
    await screen.findByText("llama");
    expect(screen.getByRole<HTMLInputElement>("searchbox").value).toBe("llama ");
    await userEvent.keyboard("wide");
    expect(await screen.findByText("llama wide")).toBeDefined();
  });

  it("combines several states and the user's own runs", async () => {
    answer(() => [aRun()]);
    show();
    await screen.findByText("pilot-7");
    await userEvent.click(screen.getByRole("checkbox", { name: "Mine" }));
    await userEvent.click(screen.getByRole("button", { name: "Any state" }));
    await userEvent.click(screen.getByRole("menuitemcheckbox", { name: "Failed" }));
    await userEvent.click(screen.getByRole("menuitemcheckbox", { name: "Starting" }));
    await waitFor(() => {
      expect(queries[queries.length - 1]).toBe("state=leased&state=starting&state=failed&by=me");
    });
    expect(screen.getByRole("button", { name: "Starting, Failed", hidden: true })).toBeDefined();
  });

  it("says that no run matches, and can show all runs again", async () => {
    answer((query) => (query.has("q") ? [] : [aRun()]));
    show({ q: "nothing like it" });
    expect(await screen.findByText("No matching runs.")).toBeDefined();
    await userEvent.click(screen.getByRole("button", { name: "Show all runs" }));
    expect(await screen.findByText("pilot-7")).toBeDefined();
    expect(screen.getByRole<HTMLInputElement>("searchbox").value).toBe("");
  });

  it("sorts by a column, reverses, and resets", async () => {
    answer(() => [aRun()]);
    show();
    await screen.findByText("pilot-7");
    const press = async (query: string, sorted: string | null) => {
      await userEvent.click(screen.getByRole("button", { name: "loss" }));
      await waitFor(() => {
        expect(queries[queries.length - 1]).toBe(query);
      });
      expect(screen.getByRole("columnheader", { name: "loss" }).getAttribute("aria-sort")).toBe(sorted);
    };
    await press("sort=loss&order=asc", "ascending");
    await press("sort=loss&order=desc", "descending");
    await press("", null);
  });
});
