import { expect, test } from "@playwright/test";
import { median, report, signIn, told } from "./session";

/** The browser's cache is empty each time, because each page has a new context. */
test("the list of runs answers a key", async ({ browser, page }) => {
  await signIn(page);
  const storageState = await page.context().storageState();
  const seconds = [];
  for (let time = 0; time < (told.times ?? 5); time += 1) {
    const context = await browser.newContext({ storageState });
    const fresh = await context.newPage();
    await fresh.goto(`/${told.team}/runs`, { waitUntil: "commit" });
    await fresh.locator("[data-row] a").first().waitFor();
    await fresh.keyboard.press("j");
    const milliseconds = await fresh.evaluate(() => performance.now());
    await expect(fresh.locator("[data-row] a").first()).toBeFocused({ timeout: 1 });
    seconds.push(milliseconds / 1_000);
    await context.close();
  }
  report({ seconds: median(seconds) });
});
