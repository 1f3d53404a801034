import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AuditLog } from "@/features/teams/audit/AuditLog";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

function entry(sequence: number, name: string) {
  const path = "/api/v1/teams/lab/members/user_bob";
  return { sequence, time: "2026-11-20T10:00:00Z", user: "user_x", name, via: "tw_12345678", address: "10.0.0.7", action: "change_role", path, details: '{"role": "viewer"}', names: {}, request_id: "r", hash: "h" };
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
  for (const text of ["Changed role", "of member", "role: viewer", "10.0.0.7", "key tw_12345678"]) expect(screen.getByText(text)).toBeDefined();
  expect(screen.getByRole("link", { name: "Download all" }).getAttribute("href")).toBe("/api/v1/teams/lab/audit/export");
  await userEvent.click(screen.getByRole("button", { name: "Show older" }));
  expect(await screen.findByText("Bob")).toBeDefined();
  expect(screen.queryByRole("button", { name: "Show older" })).toBeNull();
  await userEvent.type(screen.getByRole("searchbox"), "nobody");
  expect(await screen.findByText("No matching entries.")).toBeDefined();
  expect(asked).toContain("q=&cursor=2");
});

it("links the run or dataset that a request changed, but not one that it deleted", async () => {
  const requests = [
    ["cancel_run", "/api/v1/teams/lab/runs/run_a/cancel"],
    ["create_preparation", "/api/v1/teams/lab/datasets/ds_b/preparations"],
    ["delete_run", "/api/v1/teams/lab/runs/run_c"],
    ["reorder", "/api/v1/teams/lab/queue/order"],
  ] as const;
  server.use(http.get("*/api/v1/teams/lab/audit", () => HttpResponse.json({ items: requests.map(([action, path], index) => ({ ...entry(index, "Ana"), action, path })), next_cursor: null })));
  renderRoute(<AuditLog team="lab" />);
  expect((await screen.findByRole("link", { name: "run_a" })).getAttribute("href")).toBe("/lab/runs/run_a/overview");
  expect(screen.getByRole("link", { name: "ds_b" }).getAttribute("href")).toBe("/lab/datasets/ds_b");
  expect(screen.getByText("run_c").tagName).toBe("SPAN");
  expect(screen.getByText("Reordered queue").closest("div")?.textContent).toMatch(/^Reordered queuedetails/);
});

it("links what a request created, and names the key by which it was made", async () => {
  const made = (action: string, path: string, details: string) => ({ ...entry(1, "Ana"), action, path, details, key_name: "laptop" });
  const items = [
    { ...made("create_dataset", "/api/v1/teams/lab/datasets", '{"created": "ds_b", "name": "stories"}'), sequence: 2 },
    made("clone_run", "/api/v1/teams/lab/runs/run_a/clone", '{"created": "run_b", "name": "pilot-2"}'),
  ];
  server.use(http.get("*/api/v1/teams/lab/audit", () => HttpResponse.json({ items, next_cursor: null })));
  renderRoute(<AuditLog team="lab" />);
  expect((await screen.findByRole("link", { name: "stories" })).getAttribute("href")).toBe("/lab/datasets/ds_b");
  expect(screen.getByRole("link", { name: "pilot-2" }).getAttribute("href")).toBe("/lab/runs/run_b/overview");
  expect(screen.getByRole("link", { name: "run_a" }).getAttribute("href")).toBe("/lab/runs/run_a/overview");
  expect(screen.getAllByText("key laptop").map(({ title }) => title)).toEqual(["tw_12345678", "tw_12345678"]);
});

it("shows the name of the object in the row", async () => {
  const submitted = { ...entry(1, "Ana"), action: "submit_run", path: "/api/v1/teams/lab/runs", details: '{"name": "pilot-8", "seed": 1}' };
  server.use(http.get("*/api/v1/teams/lab/audit", () => HttpResponse.json({ items: [submitted], next_cursor: null })));
  renderRoute(<AuditLog team="lab" />);
  expect((await screen.findByText("Submitted run")).parentElement?.textContent).toBe("Submitted run pilot-8");
});

it("shows and downloads the log of the site", async () => {
  server.use(http.get("*/api/v1/audit", ({ request }) => HttpResponse.json({ items: [{ ...entry(1, "not signed in"), action: "failed_sign_in", via: "browser" }], next_cursor: null, asked: request.url })));
  renderRoute(<AuditLog team={null} />);
  expect(await screen.findByText("Failed to sign in")).toBeDefined();
  expect(screen.getByRole("region", { name: /Site audit log/ })).toBeDefined();
  expect(screen.getByRole("link", { name: "Download all" }).getAttribute("href")).toBe("/api/v1/audit/export");
});
