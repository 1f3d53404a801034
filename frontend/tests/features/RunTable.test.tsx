import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { describe, expect, it } from "vitest";
import { Boundary } from "@/components/Boundary";
import { RunTable } from "@/features/runs/RunTable";
import { renderRoute } from "../renderRoute";
import { aRun } from "../runs";
import { server } from "../server";

const RUNS = "*/api/v1/teams/lab/runs";

function show() {
  renderRoute(
    <Boundary>
      <RunTable team="lab" empty={<p>Nothing here</p>} />
    </Boundary>,
  );
}

describe("the runs table", () => {
  it("shows numbers of a running run, and the sentence of one that waits", async () => {
    const waiting = aRun({ id: "run_2", name: "wide-3b", state: "queued", sentence: "needs 2 slots, 1 free on 1 node" });
    server.use(http.get(RUNS, () => HttpResponse.json({ items: [aRun(), waiting], next_cursor: null })));
    show();
    const [, running, queued] = await screen.findAllByRole("row");
    expect(running?.textContent).toContain("38.2 %");
    expect(running?.textContent).toContain("3.124");
    expect(running?.textContent).toContain("441,000");
    expect(running?.textContent).toContain("1 h 15 min left");
    expect(queued?.textContent).toContain("Waiting");
    expect(queued?.textContent).toContain("needs 2 slots, 1 free on 1 node");
  });

  it("is walked by j and k", async () => {
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

  it("loads older runs on demand", async () => {
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
    await userEvent.click(await screen.findByRole("button", { name: "Show older runs" }));
    expect(await screen.findByText("older")).toBeDefined();
    expect(screen.queryByRole("button", { name: "Show older runs" })).toBeNull();
  });

  it("says when there is nothing", async () => {
    server.use(http.get(RUNS, () => HttpResponse.json({ items: [], next_cursor: null })));
    show();
    expect(await screen.findByText("Nothing here")).toBeDefined();
  });

  it("says what happened when the API refuses, and tries again", async () => {
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
