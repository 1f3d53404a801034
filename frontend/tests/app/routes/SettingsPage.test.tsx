import { screen, within } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { openApp } from "@tests/support/app";
import { server } from "@tests/support/server";

const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such thing." };
const OF_EVERYBODY = ["Profile", "Notices", "API keys", "Signed-in browsers", "Delete your account", "Members", "Quota", "Limits"];
const OF_OWNERS = ["Invitations", "Service accounts", "Webhooks", "Audit log", "Delete the team"];

it.each([
  ["viewer", false, ["You", "Team Lab"], OF_EVERYBODY],
  ["owner", true, ["You", "Team Lab", "Site"], [...OF_EVERYBODY, ...OF_OWNERS, "New team", "Audit log of the site"]],
])("shows role %s, site admin %s, the settings by whom they concern, and links to each", async (role, isSiteAdmin, groups, titles) => {
  server.use(
    http.get("*/api/v1/me", () =>
      HttpResponse.json({ id: "u_1", name: "Ada", email: "ada@example.org", email_verified: true, site_admin: isSiteAdmin, teams: [{ slug: "lab", name: "Lab", role }] }),
    ),
    http.get("*/api/v1/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
  await openApp("/lab/settings");
  const nav = await screen.findByRole("navigation", { name: "Settings" });
  const links = within(nav).getAllByRole<HTMLAnchorElement>("link");
  expect(links.map(({ textContent }) => textContent).sort()).toEqual([...titles].sort());
  for (const link of links) {
    const section = document.querySelector(link.hash);
    expect(section?.querySelector("h3")?.textContent, link.hash).toBe(link.textContent);
  }
  expect(screen.getAllByRole("heading", { level: 2 }).map(({ textContent }) => textContent)).toEqual(groups);
});
