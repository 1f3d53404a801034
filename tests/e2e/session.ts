import { expect, type Page } from "@playwright/test";

/** The team of this test; other tests use the same platform. */
export const TEAM = process.env["TRAINWRIGHT_E2E_TEAM"] ?? "crew";

/** Signs in by the one-time link and opens the team's home page. */
export async function signIn(page: Page): Promise<void> {
  await page.goto(process.env["TRAINWRIGHT_E2E_LINK"] ?? "");
  await submitLink(page);
  // The link leads to the first of the person's teams.
  await page.goto(`/${TEAM}`);
}

/** Presses the button of an open one-time link; again if the database is busy, as the page then says. */
export async function submitLink(page: Page): Promise<void> {
  const button = page.getByRole("main").locator("button[type=submit]");
  await expect(async () => {
    if (isLink(new URL(page.url()))) await button.click();
    await page.waitForURL((url) => !isLink(url), { timeout: 15_000 });
  }).toPass({ timeout: 120_000 });
}

function isLink({ pathname }: URL): boolean {
  return pathname.startsWith("/link");
}
