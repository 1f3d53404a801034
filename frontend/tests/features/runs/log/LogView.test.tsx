import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { delay, http, HttpResponse } from "msw";
import { useState } from "react";
import { beforeEach, expect, it } from "vitest";
import { LogView } from "@/features/runs/log/LogView";
import type { LogSearch } from "@/features/runs/log/logSearch";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const TOTAL = 3_000;
const STRETCH = 1_000;
const log = Array.from({ length: TOTAL }, (_, index) => `line ${index + 1}${(index + 1) % 700 === 0 ? " Loss is \u001b[31mhigh" : ""}`);
let asked: string[] = [];
let views: LogSearch[] = [];
/** The most lines in one response. */
let most = Infinity;

beforeEach(() => {
  [asked, views] = [[], []];
  most = Infinity;
  const number = (url: URL, name: string) => Number(url.searchParams.get(name));
  const some = (from: number, to: number) => log.slice(from, to).map((text, index) => ({ number: from + index + 1, text }));
  server.use(
    http.get("*/logs/2/rank-0.log/lines", ({ request }) => {
      const url = new URL(request.url);
      const first = number(url, "first");
      asked.push(`lines ${first}`);
      return HttpResponse.json({ lines: some(first - 1, first - 1 + Math.min(most, number(url, "limit"))), total: TOTAL });
    }),
    http.get("*/logs/2/rank-0.log/search", ({ request }) => {
      const url = new URL(request.url);
      const after = number(url, "after_line");
      asked.push(`search ${after}`);
      const part = (url.searchParams.get("q") ?? "").toLowerCase();
      const lines = some(after, after + STRETCH).filter(({ text }) => text.toLowerCase().includes(part));
      return HttpResponse.json({ lines, searched_to: Math.min(TOTAL, after + STRETCH), end: after + STRETCH >= TOTAL });
    }),
  );
});

function Log({ first }: { first: LogSearch }) {
  const [view, setView] = useState(first);
  const onView = (next: LogSearch) => {
    views.push(next);
    setView(next);
  };
  const place = { team: "lab", run: "run_1", attempt: 2, file: "rank-0.log" };
  return <LogView place={place} bytes={1_000} live={false} line={view.line} find={view.find ?? ""} onView={onView} />;
}

function show(first: LogSearch = {}) {
  renderRoute(<Log first={first} />);
}

it("starts at the end, requests only visible lines, and numbers them", async () => {
  show();
  const region = await screen.findByRole("region", { name: "Log of attempt 2, rank-0.log" });
  expect(await within(region).findByText("line 3000")).toBeDefined();
  expect(within(region).getByRole("button", { name: "Link to line 3,000" })).toBeDefined();
  expect(within(region).queryByText("line 2000")).toBeNull();
  expect(new Set(asked)).toEqual(new Set(["lines 1", "lines 2501"]));
});

it("links to a line by its number and by the input field", async () => {
  show();
  await userEvent.click(await screen.findByRole("button", { name: "Link to line 2,997" }));
  expect(views).toEqual([{ line: 2_997, find: undefined }]);
  expect(screen.getByRole("button", { name: "Link to line 2,997" }).parentElement?.getAttribute("aria-current")).toBe("true");
  const field = screen.getByRole<HTMLInputElement>("spinbutton", { name: "Go to line" });
  expect(field.value).toBe("2997");
  await userEvent.clear(field);
  await userEvent.type(field, "2500{Enter}");
  expect(views[1]).toEqual({ line: 2_500, find: undefined });
});

it("shows only the search on phones until the other controls are opened", async () => {
  show({ line: 2_997 });
  const more = await screen.findByRole("button", { name: "More log controls" });
  const hidden = () => ["Previous", "Copy link", "Go"].map((name) => screen.getByRole("button", { name }).closest(".max-tablet\\:hidden") !== null);
  expect(hidden()).toEqual([true, true, true]);
  await userEvent.click(more);
  expect(hidden()).toEqual([false, false, false]);
});

it("searches on the server, counts matches so far, and moves between them", async () => {
  show();
  await userEvent.type(await screen.findByRole("searchbox", { name: "Search in rank-0.log" }), "LOSS is{Enter}");
  expect(await screen.findByText("1 of 1 line found so far; searched to line 1,000 of 3,000")).toBeDefined();
  expect(views).toEqual([{ line: 700, find: "LOSS is" }]);
  await userEvent.click(screen.getByRole("button", { name: "Next" }));
  expect(await screen.findByText("2 of 2 lines found so far; searched to line 2,000 of 3,000")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Search more" }));
  expect(await screen.findByText("2 of 4 lines found")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Previous" }));
  await userEvent.click(screen.getByRole("button", { name: "Previous" }));
  expect(views.slice(1).map(({ line }) => line)).toEqual([1_400, 700, 2_800]);
  expect(asked.filter((value) => value.startsWith("search"))).toEqual(["search 0", "search 1000", "search 2000"]);
});

it("continues if the server ends a page early", async () => {
  most = 200;
  show();
  expect(await screen.findByText("line 3000")).toBeDefined();
  expect(asked.slice(1)).toEqual(["lines 2501", "lines 2701", "lines 2901"]);
});

it("goes to the latest search's match although an earlier search responds later", async () => {
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  let late = false;
  server.use(
    http.get("*/logs/2/rank-0.log/search", async ({ request }) => {
      const slow = new URL(request.url).searchParams.get("q") === "slow";
      if (slow) await held;
      late ||= slow;
      return HttpResponse.json({ lines: [{ number: slow ? 10 : 20, text: "x" }], searched_to: TOTAL, end: true });
    }),
  );
  show();
  const box = await screen.findByRole("searchbox", { name: "Search in rank-0.log" });
  await userEvent.type(box, "slow{Enter}");
  await userEvent.clear(box);
  await userEvent.type(box, "quick{Enter}");
  await waitFor(() => {
    expect(views).toEqual([{ line: 20, find: "quick" }]);
  });
  release();
  await waitFor(() => {
    expect(late).toBe(true);
  });
  await delay(50);
  expect(views).toEqual([{ line: 20, find: "quick" }]);
});

it("says when nothing is found, and clears the search with its text", async () => {
  show({ find: "absent" });
  expect(await screen.findByText("0 lines found so far; searched to line 1,000 of 3,000")).toBeDefined();
  await userEvent.clear(screen.getByRole("searchbox"));
  await userEvent.keyboard("{Enter}");
  await waitFor(() => {
    expect(views).toEqual([{ line: undefined, find: undefined }]);
  });
  expect(screen.queryByText(/found/)).toBeNull();
});

it("shows the error of a search", async () => {
  server.use(
    http.get("*/logs/2/rank-0.log/search", () =>
      HttpResponse.json({ title: "Busy", status: 503, code: "busy", detail: "The database is busy. Wait a second." }, { status: 503 }),
    ),
  );
  show({ find: "x" });
  expect(await screen.findByText("The database is busy. Wait a second.")).toBeDefined();
});

it("stays as wide as the widest line shown so far", async () => {
  show({ line: 700 });
  const region = await screen.findByRole("region", { name: "Log of attempt 2, rank-0.log" });
  Object.defineProperty(region, "scrollHeight", { value: 18 * TOTAL });
  const width = () => (region.firstElementChild as HTMLElement).style.minWidth;
  const scroll = (to: number) => fireEvent.scroll(region, { target: { scrollTop: 18 * to } });
  scroll(690);
  await within(region).findByText(/^line 700 Loss is high$/);
  const before = width();
  expect(before).toContain("ch");
  scroll(200);
  await within(region).findByText("line 201");
  expect(width()).toBe(before);
});
