import { expect, test } from "@playwright/test";
import { report, signIn, told } from "./session";
import { traced } from "./trace";

/** Line by line with the wheel, and to arbitrary places with the scrollbar. */
test("a long log is scrolled", async ({ browser, page }) => {
  await signIn(page);
  await page.goto(`/${told.team}/runs/${told.run ?? ""}/logs`);
  const log = page.getByRole("region", { name: /^Log of attempt/ });
  await expect(log.getByText("here is the needle")).toBeVisible();
  await log.hover();
  const use = await traced(browser, page, async () => {
    const end = Date.now() + 1_000 * (told.seconds ?? 10);
    for (let time = 0; Date.now() < end; time += 1) {
      if (time % 40 === 39) await log.evaluate((box, share) => (box.scrollTop = share * box.scrollHeight), ((time * 37) % 100) / 100);
      else await page.mouse.wheel(0, time % 80 < 40 ? -240 : 240);
    }
  });
  report(use);
});
