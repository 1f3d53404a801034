import { type Page } from "@playwright/test";

/** The team of this test; other tests use the same platform. */
export const TEAM = process.env["TRAINWRIGHT_E2E_TEAM"] ?? "crew";

/** Signs in by the one-time link and opens the team's home page. */
export async function signIn(page: Page): Promise<void> {
  await page.goto(process.env["TRAINWRIGHT_E2E_LINK"] ?? "");
  await page.getByRole("main").getByRole("button", { name: "Sign in" }).click();
  // The link leads to the first of the person's teams.
  await page.waitForURL((url) => !url.pathname.startsWith("/link"));
  await page.goto(`/${TEAM}`);
}
