import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { openApp } from "@tests/support/app";
import { server } from "@tests/support/server";

const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such thing." };
const OF_EVERYBODY = ["Profile", "Notices", "Keys and browsers", "Members", "Limits"];
const OF_OWNERS = ["Service accounts", "Webhooks", "Audit log", "Delete the team"];
const OF_ADMINS = ["New team", "Site audit log"];

function signInAs(role: string, isSiteAdmin: boolean) {
  server.use(
    http.get("*/api/v1/me", () =>
      HttpResponse.json({ id: "u_1", name: "Ada", email: "ada@example.org", email_verified: true, site_admin: isSiteAdmin, teams: [{ slug: "lab", name: "Lab", role }] }),
    ),
    http.get("*/api/v1/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
}

it.each([
  ["viewer", false, OF_EVERYBODY],
  ["owner", true, [...OF_EVERYBODY, ...OF_OWNERS, ...OF_ADMINS]],
])("shows role %s, site admin %s, a page for each kind of setting", async (role, isSiteAdmin, titles) => {
  signInAs(role, isSiteAdmin);
  await openApp("/lab/settings");
  const nav = await screen.findByRole("navigation", { name: "Settings" });
  const links = within(nav).getAllByRole("link").map(({ textContent }) => textContent);
  expect([...links].sort()).toEqual([...titles].sort());
  expect(within(nav).getByRole("link", { current: "page" }).textContent).toBe("Profile");
  for (const title of links) {
    await userEvent.click(within(nav).getByRole("link", { name: title }));
    await waitFor(() => {
      expect(within(nav).getByRole("link", { current: "page" }).textContent).toBe(title);
    });
    const group = OF_ADMINS.includes(title) ? "Site" : ["Profile", "Notices", "Keys and browsers"].includes(title) ? "You" : "Team Lab";
    expect(screen.getAllByRole("heading", { level: 2 }).map(({ textContent }) => textContent)).toEqual([group]);
    const sections = screen.getAllByRole("heading", { level: 3 }).map(({ textContent }) => textContent);
    expect(sections.length, title).toBeGreaterThan(0);
    expect(sections.length, title).toBeLessThan(4);
  }
});

it("opens the page that is selected on a phone", async () => {
  signInAs("viewer", false);
  await openApp("/lab/settings/keys");
  const select = await screen.findByRole("combobox", { name: "Settings page" });
  expect(within(select).getAllByRole("option").map(({ textContent }) => textContent)).toEqual(OF_EVERYBODY);
  await userEvent.selectOptions(select, "Members");
  expect(await screen.findByRole("heading", { name: "Members" })).toBeTruthy();
  expect(screen.queryByRole("heading", { name: "API keys" })).toBeNull();
});

it("does not find pages that do not exist or that a person may not see", async () => {
  signInAs("viewer", false);
  await openApp("/lab/settings/webhooks");
  expect(await screen.findByRole("heading", { name: "Page not found" })).toBeTruthy();
});
