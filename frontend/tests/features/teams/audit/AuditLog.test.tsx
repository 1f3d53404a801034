import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AuditLog } from "@/features/teams/audit/AuditLog";
import { clockTime, dayText } from "@/lib/format";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

function words(text: string) {
  return { text, object: null };
}

function object(kind: string, id: string, text = id) {
  return { text, object: { kind, id } };
}

function entry(sequence: number, name: string) {
  const path = "/api/v1/teams/lab/members/user_bob";
  const sentence = [words("Changed role"), words("of member"), object("member", "user_agrc2sccw5zz")];
  return { sentence, sequence, time: "2026-11-20T10:00:00Z", user: "user_x", name, via: "tw_12345678", address: "10.0.0.7", action: "change_role", path, details: '{"role": "viewer"}', names: {}, request_id: "r", hash: "h" };
}

it("shows who did what to what from where, continues with older entries, and searches", async () => {
  const asked: string[] = [];
  server.use(
    http.get("*/api/v1/teams/lab/audit", ({ request }) => {
      const { searchParams } = new URL(request.url);
      asked.push(searchParams.toString());
      if (searchParams.get("q") === "nobody") return HttpResponse.json({ items: [], next_cursor: null });
      return searchParams.has("cursor") ? HttpResponse.json({ items: [entry(1, "Bob")], next_cursor: null }) : HttpResponse.json({ items: [entry(2, "Ana")], next_cursor: "2" });
    }),
  );
  renderRoute(<AuditLog team="lab" />);
  expect(await screen.findByText("Ana")).toBeDefined();
  for (const text of ["Changed role", "of member", "role:", "viewer", "10.0.0.7", "key tw_12345678"]) expect(screen.getByText(text)).toBeDefined();
  expect(screen.getByRole("link", { name: "Download all (JSON Lines)" }).getAttribute("href")).toBe("/api/v1/teams/lab/audit/export");
  await userEvent.click(screen.getByRole("button", { name: "Show older" }));
  expect(await screen.findByText("Bob")).toBeDefined();
  expect(screen.queryByRole("button", { name: "Show older" })).toBeNull();
  await userEvent.type(screen.getByRole("searchbox"), "nobody");
  expect(await screen.findByText("No matching entries.")).toBeDefined();
  expect(asked).toContain("q=&cursor=2");
  await userEvent.click(screen.getByRole("button", { name: "Show all entries" }));
  expect(await screen.findByText("Ana")).toBeDefined();
});

it("links runs and datasets that still exist, and shortens ids", async () => {
  const sentences = [
    [words("Deleted checkpoint"), object("checkpoint", "ckpt_bb4kq2p", "step 40"), words("of run"), object("run", "run_a", "pilot")],
    [words("Created dataset"), object("dataset", "ds_b", "stories")],
    [words("Deleted run"), object("run", "run_aavm77m")],
    [words("Asked to pause 2 runs:"), object("run", "run_a", "pilot,"), object("run", "run_b", "probe")],
    [words("Renamed team"), object("team", "laboratory"), words("to"), words("The lab")],
  ];
  const names = { run_a: "pilot", ds_b: "stories", ckpt_bb4kq2p: "step 40" };
  server.use(http.get("*/api/v1/teams/lab/audit", () => HttpResponse.json({ items: sentences.map((sentence, index) => ({ ...entry(index, "Ana"), sentence, names })), next_cursor: null })));
  renderRoute(<AuditLog team="lab" />);
  expect((await screen.findByRole("link", { name: "pilot" })).getAttribute("href")).toBe("/lab/runs/run_a/overview");
  expect(screen.getByRole("link", { name: "stories" }).getAttribute("href")).toBe("/lab/datasets/ds_b");
  expect(screen.getByRole("link", { name: "pilot," })).toBeDefined();
  for (const text of ["step 40", "probe", "laboratory", "vm77m"]) expect(screen.getByText(text).tagName).toBe("SPAN");
  expect(screen.getByText("vm77m").title).toBe("run_aavm77m");
  expect(screen.getByText("Renamed team").parentElement?.textContent).toBe("Renamed team laboratory to The lab");
});

it("groups entries by day, with the time of the day, and names a key beside its person", async () => {
  const at = (sequence: number, time: string, via: string) => ({ ...entry(sequence, "Ana"), time, via });
  const now = new Date().toISOString();
  const items = [at(3, now, "browser"), at(2, "2026-11-20T12:30:05Z", "tw_12345678"), at(1, "2026-11-20T12:00:00Z", "browser")];
  server.use(http.get("*/api/v1/teams/lab/audit", () => HttpResponse.json({ items, next_cursor: null })));
  renderRoute(<AuditLog team="lab" />);
  await screen.findAllByText("Ana");
  const [, today, day] = screen.getAllByRole("rowgroup").map((group) => within(group).getAllByRole("row").map((row) => row.children[1]?.textContent ?? row.textContent));
  expect(today).toEqual(["Today", "Ana"]);
  expect(day).toEqual([dayText("2026-11-20T12:00:00Z"), "Anakey tw_12345678", "Ana"]);
  expect(screen.getByText(clockTime("2026-11-20T12:30:05Z")).tagName).toBe("TIME");
});

it("names the key by which a change was made", async () => {
  server.use(http.get("*/api/v1/teams/lab/audit", () => HttpResponse.json({ items: [{ ...entry(1, "Ana"), key_name: "laptop" }], next_cursor: null })));
  renderRoute(<AuditLog team="lab" />);
  expect((await screen.findByText("key laptop")).title).toBe("tw_12345678");
});

it("shows and downloads the log of the site", async () => {
  server.use(http.get("*/api/v1/audit", ({ request }) => HttpResponse.json({ items: [{ ...entry(1, "not signed in"), action: "failed_sign_in", sentence: [words("Failed to sign in")], via: "browser" }], next_cursor: null, asked: request.url })));
  renderRoute(<AuditLog team={null} />);
  expect(await screen.findByText("Failed to sign in")).toBeDefined();
  expect(screen.getByRole("region", { name: /Site audit log/ })).toBeDefined();
  expect(screen.getByRole("link", { name: "Download all (JSON Lines)" }).getAttribute("href")).toBe("/api/v1/audit/export");
});

it("shows the request by field: parameters, nested fields, and what was cut off as it is", async () => {
  const requests = ["?dry_run=true&keep=2 {\"created\": \"ds_1\", \"curation\": {\"mix\": [{\"weight\": 2}], \"filters\": {}}, \"pinned\": null}", '{"name": "a long na…', "?scope=all", ""];
  server.use(http.get("*/api/v1/teams/lab/audit", () => HttpResponse.json({ items: requests.map((details, index) => ({ ...entry(index, "Ana"), details })), next_cursor: null })));
  const { container } = renderRoute(<AuditLog team="lab" />);
  await screen.findAllByText("Ana");
  const fields = [...container.querySelectorAll("dl")].map((list) => [...list.children].map(({ textContent }) => textContent));
  expect(fields).toEqual([
    ["dry_run: true", "keep: 2", "created: ds_1", "curation.mix.0.weight: 2", "curation.filters: {}", "pinned: null"],
    ['{"name": "a long na…'],
    ["scope: all"],
    [],
  ]);
});
