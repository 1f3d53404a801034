import { test, type Page } from "@playwright/test";
import { median, report, signIn, told } from "./session";

interface Seen {
  seconds: number;
  requests: number;
  megabytes: number;
  busy_seconds: number;
}

test("many runs are compared", async ({ page }) => {
  await signIn(page);
  const seen: Seen[] = [];
  for (let time = 0; time < (told.times ?? 3); time += 1) seen.push(await compared(page));
  const of = (name: keyof Seen) => median(seen.map((one) => one[name]));
  report({ seconds: of("seconds"), requests: of("requests"), megabytes: of("megabytes"), busy_seconds: of("busy_seconds") });
});

/** From navigation, with nothing cached, until each chart's canvas has some pixels in every run's color. */
async function compared(page: Page): Promise<Seen> {
  const [runs, series] = [told.runs ?? [], told.series ?? []];
  await page.goto("about:blank");
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  await page.goto(`/${told.team}/compare?runs=${runs.join(",")}&series=${series.join(",")}`, { waitUntil: "commit" });
  const milliseconds = await page.evaluate(drawn, { charts: series.length, runs: runs.length });
  const asked = await page.evaluate(() => performance.getEntriesByType("resource").map((one) => (one as PerformanceResourceTiming).decodedBodySize));
  const { metrics } = await session.send("Performance.getMetrics");
  await session.detach();
  return {
    seconds: milliseconds / 1_000,
    requests: asked.length,
    megabytes: asked.reduce((sum, bytes) => sum + bytes, 0) / 1e6,
    busy_seconds: metrics.find(({ name }) => name === "TaskDuration")?.value ?? NaN,
  };
}

/** Runs in the page. Resolves when everything is drawn, to the milliseconds since navigation. */
function drawn({ charts, runs }: { charts: number; runs: number }): Promise<number> {
  const canvases = () => Array.from(document.querySelectorAll<HTMLCanvasElement>("[aria-label='Curves'][aria-busy='false'] canvas"));
  const listed = () => document.querySelectorAll("[aria-label='Compared runs'] tbody tr").length;
  // Grid lines and axis labels alone fill less than this. Reading pixels is slow, so it comes last.
  const hasCurve = (canvas: HTMLCanvasElement) => {
    const { width, height } = canvas;
    const data = canvas.getContext("2d")?.getImageData(0, 0, width, height).data ?? [];
    let filled = 0;
    for (let at = 3; at < data.length; at += 4) if ((data[at] ?? 0) > 0) filled += 1;
    return filled > 0.05 * width * height;
  };
  const bare = () => canvases().filter((canvas) => !hasCurve(canvas)).map((canvas) => canvas.closest("figure")?.querySelector("h2")?.textContent);
  return new Promise((resolve, reject) => {
    const look = () => {
      if (canvases().length < charts || listed() < runs) {
        requestAnimationFrame(look);
        return;
      }
      const seen = performance.now();
      if (bare().length === 0) resolve(seen);
      else if (seen > 60_000) reject(new Error(`charts without a curve: ${bare().join(", ")}`));
      else requestAnimationFrame(look);
    };
    look();
  });
}
