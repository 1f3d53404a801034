import { expect, test } from "@playwright/test";
import { report, signIn, told } from "./session";
import { traced } from "./trace";

/** Longer than the page waits before it writes the zoom window into the URL. */
const REST_MS = 400;

/** Zooms in, pans and zooms out with keys and quick wheel turns; moves the pointer over the curve. */
test("the charts of a long run are zoomed and panned", async ({ browser, page }) => {
  await signIn(page);
  await page.goto(`/${told.team}/runs/${told.run ?? ""}/overview`);
  const loss = page.locator("figure", { has: page.getByRole("heading", { name: "loss", exact: true }) });
  const plot = loss.getByRole("slider");
  await expect(plot.locator("canvas")).toBeVisible();
  const box = await plot.locator(".u-over").boundingBox();
  if (box === null) throw new Error("the chart is not drawn");
  const [middle, left, width] = [box.y + box.height / 2, box.x, box.width];
  await plot.focus();
  const moves = ["+", "+", "ArrowLeft", "ArrowLeft", "ArrowRight", "+", "ArrowLeft", "-", "-", "0"];
  const use = await traced(browser, page, async () => {
    const end = Date.now() + 1_000 * (told.seconds ?? 10);
    for (let time = 0; Date.now() < end; time += 1) {
      await page.keyboard.press(moves[time % moves.length] ?? "0");
      await page.mouse.move(left + ((time * 7) % 10) * (width / 10), middle, { steps: 8 });
      if (time % moves.length === moves.length - 1) {
        await page.mouse.move(left + 0.3 * width, middle);
        await page.mouse.down();
        await page.mouse.move(left + 0.6 * width, middle, { steps: 8 });
        await page.mouse.up();
      }
      if (time % 5 === 4) await page.waitForTimeout(REST_MS);
    }
  });
  report(use);
});
