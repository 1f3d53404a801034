import { expect, test, type Browser, type Page } from "@playwright/test";
import { auditSizes, browserErrors } from "./audit";
import { signIn, submitLink, TEAM } from "./session";

const BOB = { email: `bob@${TEAM}.example`, password: "what only Bob knows", next: "what Bob thinks of later" };

/** Removed people get 404 for the team. */
const REMOVED = /status of 404/;

test("people join, change their profile, get other roles, and leave", async ({ page, browser }) => {
  await signIn(page);
  const errors = browserErrors(page);
  await page.goto(`/${TEAM}/settings/members`);
  await expect(page.getByText("The only owner cannot leave.")).toBeVisible();

  await page.getByLabel("Email address to invite").fill(BOB.email);
  await page.getByLabel("Role to give").selectOption("editor");
  await page.getByRole("button", { name: "Invite" }).click();
  const link = (await page.getByRole("button", { name: /^Copy .*\/link\// }).textContent()) ?? "";
  const bob = await newcomer(browser, link);

  await test.step("Bob changes his name and his password", async () => {
    await bob.goto(`/${TEAM}/settings/profile`);
    await bob.getByLabel("Your name").fill("Robert");
    await bob.getByRole("button", { name: /^Save ?your name$/ }).click();
    await bob.getByRole("link", { name: "Members" }).click();
    await expect(bob.getByRole("region", { name: "Members", exact: true })).toContainText("Robert (you)");
    await bob.getByRole("link", { name: "Profile" }).click();
    await bob.getByRole("button", { name: "Change password…" }).click();
    const dialog = bob.getByRole("dialog");
    await dialog.getByLabel("Current password").fill("not his password");
    await dialog.getByLabel("New password", { exact: true }).fill(BOB.next);
    await dialog.getByLabel("New password again").fill(BOB.next);
    await dialog.getByRole("button", { name: "Change password" }).click();
    await expect(dialog.getByText("This is not your current password.")).toBeVisible();
    await auditSizes(bob, "people-password");
    await dialog.getByLabel("Current password").fill(BOB.password);
    await dialog.getByRole("button", { name: "Change password" }).click();
    await expect(bob.getByText("Password changed.")).toBeVisible();
  });

  await test.step("an owner renames the team and changes roles", async () => {
    await page.reload();
    await page.getByLabel("Team name").fill("Language Lab");
    await page.getByRole("button", { name: /^Save ?team name$/ }).click();
    await expect(page.getByRole("heading", { name: "Team Language Lab" })).toBeVisible();
    await page.getByLabel("Role of Robert").selectOption("owner");
    await expect(page.getByRole("dialog", { name: "Make Robert an owner?" })).toBeVisible();
    await auditSizes(page, "people-role");
    await page.getByRole("button", { name: "Change role" }).click();
    await expect(page.getByLabel("Role of Robert")).toHaveValue("owner");
    await auditSizes(page, "people-settings");
  });

  await test.step("an owner limits the team, creates a webhook, and finds both in the audit log", async () => {
    await page.getByRole("link", { name: "Limits" }).click();
    const limits = page.locator("#limits");
    const hours = limits.getByLabel("CPU slot-hours a month");
    await hours.fill("-1");
    await expect(limits.getByText("Enter a number from 0 to 1,000,000,000, or leave it empty.")).toBeVisible();
    await limits.getByRole("button", { name: "Save limits" }).click();
    await expect(hours).toBeFocused();
    await hours.fill("12.5");
    await limits.getByRole("button", { name: "Save limits" }).click();
    await expect(limits.getByText(/of 12\.5/)).toBeVisible();
    await auditSizes(page, "people-limits");
    await page.getByRole("link", { name: "Webhooks" }).click();
    const webhooks = page.locator("#webhooks");
    await webhooks.getByLabel("Address of the new webhook").fill("https://example.org/hook");
    await webhooks.getByRole("button", { name: "Create webhook" }).click();
    await expect(webhooks.getByText("it will not be shown again")).toBeVisible();
    await page.getByRole("link", { name: "Audit log", exact: true }).click();
    const log = page.getByRole("region", { name: "Audit log", exact: true });
    await expect(log.getByText("Created webhook")).toBeVisible();
    await log.getByText("details", { exact: true }).first().click();
    await expect(log.getByRole("definition").filter({ hasText: "https://example.org/..." })).toBeVisible();
    await auditSizes(page, "people-audit");
    await page.goto(`/${TEAM}/usage`);
    await expect(page.getByText(/of 12\.5/)).toBeVisible();
    await auditSizes(page, "people-usage");
    await page.goto(`/${TEAM}/settings/members`);
  });

  await test.step("an owner removes the other, who then loses access", async () => {
    await page.getByRole("button", { name: /^Remove ?Robert$/ }).click();
    await page.getByRole("button", { name: "Remove", exact: true }).click();
    await expect(page.getByLabel("Role of Robert")).toHaveCount(0);
    expect(errors, "the owner's page reports no error").toEqual([]);
    const problems = browserErrors(bob);
    await bob.goto("/");
    await expect(bob.getByRole("heading", { name: "You are not in a team" })).toBeVisible();
    await auditSizes(bob, "people-no-team");
    expect(problems.filter((text) => !REMOVED.test(text))).toEqual([]);
    await bob.getByRole("button", { name: "Sign out" }).click();
    await bob.getByLabel("Email").fill(BOB.email);
    await bob.getByLabel("Password").fill(BOB.next);
    await bob.getByRole("button", { name: "Sign in" }).click();
    await expect(bob.getByRole("heading", { name: "You are not in a team" })).toBeVisible();
  });
  await bob.context().close();
});

/** Bob's own browser, in which he has used the invitation. */
async function newcomer(browser: Browser, link: string): Promise<Page> {
  const context = await browser.newContext({ locale: "en-GB" });
  const page = await context.newPage();
  await page.goto(new URL(link).pathname);
  await page.getByLabel("Your name").fill("Bob");
  await page.getByLabel("Password").fill(BOB.password);
  await submitLink(page);
  return page;
}
