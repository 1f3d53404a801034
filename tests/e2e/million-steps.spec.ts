import { expect, test, type Locator, type Page, type Request } from "@playwright/test";
import { audit, browserErrors } from "./audit";
import { signIn, TEAM } from "./session";

const STEPS = 1_000_000;
const RUN = process.env["TRAINWRIGHT_E2E_RUN"] ?? "";

interface Answer {
  series: { name: string; steps: number[]; values: number[] }[];
}

/** Zooms in and out of a growing run of a million steps, and reads its log. */
test("a run of a million steps, while it grows", async ({ page }) => {
  const errors = browserErrors(page);
  await signIn(page);
  await page.getByRole("link", { name: "Runs", exact: true }).click();
  await expect(page.getByRole("heading", { name: "Runs", level: 1 })).toBeVisible();
  await expect(page.getByRole("link", { name: "million" })).toBeVisible();

  await test.step("the list is filtered and sorted, and the address keeps it", async () => {
    await audit(page, "runs-all");
    await page.keyboard.press("/");
    await page.keyboard.type("night");
    await expect(page.getByRole("link", { name: "million" })).toBeHidden();
    await expect(page.getByRole("link", { name: /^night/ })).toHaveCount(2);
    await expect(page).toHaveURL(/q=night/);
    await page.getByRole("button", { name: "name", exact: true }).click();
    await expect(page.getByRole("link", { name: /^night/ })).toHaveText(["night 1", "night 2"]);
    await page.getByRole("button", { name: "Any state" }).click();
    await page.getByRole("menuitemcheckbox", { name: "Running" }).click();
    await page.keyboard.press("Escape");
    await expect(page.getByText("No matching runs.")).toBeVisible();
    await audit(page, "runs-none");
    await page.reload();
    await expect(page.getByText("No matching runs.")).toBeVisible();
    await page.getByRole("searchbox").clear();
    await expect(page.getByRole("link", { name: "million" })).toBeVisible();
    await page.getByRole("checkbox", { name: "Mine" }).check();
    await audit(page, "runs-filtered");
    await page.getByRole("button", { name: "Clear filters" }).click();
    await expect(page.getByRole("link", { name: /^night/ })).toHaveCount(2);
  });

  const whole = page.waitForResponse((response) => isCurves(response.request()));
  await page.getByRole("link", { name: "million" }).click();
  const loss = figure(page, "loss");
  const plot = loss.getByRole("slider");

  await test.step("the full run is drawn with its spike, and its last value is live", async () => {
    const { steps, values } = lossOf((await (await whole).json()) as Answer);
    expect(steps.length).toBeGreaterThan(500);
    expect(steps.length).toBeLessThanOrEqual(4_000);
    expect(Math.max(...values)).toBe(15);
    const requested: string[] = [];
    const note = (request: Request) => {
      if (isCurves(request)) requested.push(request.url());
    };
    page.on("request", note);
    for (let time = 0; time < 5; time += 1) await changes(loss.locator("figcaption"));
    await follows(page, loss);
    page.off("request", note);
    expect(requested, "streamed points are merged, not requested again").toEqual([]);
    await expect(page.getByText("live", { exact: true })).toBeVisible();
    await audit(page, "run-million");
  });

  await test.step("frames stay short while it grows", async () => {
    const longest = await longTasks(page, 5_000);
    console.log(`tasks over 50 ms in 5 s, in ms: ${longest.join(", ") || "none"}`);
  });

  await test.step("a drag loads the window with more points per step", async () => {
    const coming = page.waitForResponse((response) => isCurves(response.request()));
    await drag(page, plot, 0.6, 0.7);
    const answer = await coming;
    const query = new URL(answer.url()).searchParams;
    const [after, to] = [Number(query.get("after_step")), Number(query.get("to_step"))];
    const newest = await stepOf(page);
    expect(after / newest).toBeGreaterThan(0.55);
    expect(to / newest).toBeLessThan(0.75);
    expect(query.getAll("names")).toEqual(expect.arrayContaining(["loss", "mfu", "tokens_per_second", "grad_norm"]));
    const { steps } = lossOf((await answer.json()) as Answer);
    expect(Math.min(...steps)).toBeGreaterThan(after);
    expect(Math.max(...steps)).toBeLessThanOrEqual(to);
    expect(steps.length / (to - after)).toBeGreaterThan(5 * (1_200 / STEPS));
    await expect(page).toHaveURL(new RegExp(`from=${after + 1}&to=${to}`));
    await expect(page.getByText(/^Steps [\d,]+ to [\d,]+$/)).toBeVisible();
    await audit(page, "run-million-window");
  });

  await test.step("keys zoom and pan; the address restores the window", async () => {
    await plot.focus();
    const before = windowOf(page);
    await plot.press("+");
    await expect.poll(() => width(windowOf(page))).toBeCloseTo(width(before) / 2, -2);
    await plot.press("ArrowLeft");
    await expect(plot).toHaveAttribute("aria-valuetext", /^steps [\d,]+ to [\d,]+$/);
    for (let time = 0; time < 16; time += 1) await plot.press("+");
    // The address is updated once no key is pressed for a moment.
    await expect.poll(async () => (await plot.getAttribute("aria-valuetext")) === wordsOf(windowOf(page))).toBe(true);
    const close = windowOf(page);
    expect(width(close)).toBeLessThan(10);
    await expect(plot).toBeFocused();
    const coming = page.waitForResponse((response) => isCurves(response.request()) && response.url().includes("to_step"));
    await page.reload();
    const { steps } = lossOf((await (await coming).json()) as Answer);
    expect(steps).toEqual(Array.from({ length: width(close) + 1 }, (_, index) => close.from + index));
    expect(windowOf(page)).toEqual(close);
    await page.getByRole("radiogroup", { name: "x axis" }).getByText("tokens").click();
    await expect(page).toHaveURL(/x=tokens/);
    expect(windowOf(page)).toEqual(close);
    await audit(page, "run-million-close");
    await plot.dblclick();
    await expect(page).not.toHaveURL(/from=/);
    await page.getByRole("radiogroup", { name: "x axis" }).getByText("step").click();
  });

  await test.step("a window at the end follows it; one in the past does not move", async () => {
    await drag(page, plot, 0.9, 1);
    await expect(page).toHaveURL(/last=\d+/);
    await expect(page.getByText(/^The last [\d,]+ steps, following the end$/)).toBeVisible();
    for (let time = 0; time < 3; time += 1) await changes(loss.locator("figcaption"));
    await follows(page, loss);
    const coming = page.waitForResponse((response) => isCurves(response.request()) && response.url().includes("to_step"));
    await page.getByRole("button", { name: "Earlier steps" }).click();
    await expect(page).toHaveURL(/from=\d+&to=\d+/);
    await coming;
    await changes(page.getByText(/^step [\d,]+/).first());
    const still = await loss.locator("figcaption").textContent();
    await changes(page.getByText(/^step [\d,]+/).first());
    await changes(page.getByText(/^step [\d,]+/).first());
    await expect(loss.locator("figcaption")).toHaveText(still ?? "");
    await page.getByRole("button", { name: "show all" }).click();
    await expect(page).not.toHaveURL(/from=/);
  });

  await test.step("the log of a million lines follows its end", async () => {
    await page.getByRole("link", { name: "Logs" }).click();
    const log = page.getByRole("region", { name: /^Log of attempt/ });
    await expect(log.getByText(/^step \d{7}: loss/).last()).toBeVisible();
    await expect(page.getByText("Following new lines.")).toBeVisible();
    const last = log.getByRole("button", { name: /^Link to line/ }).last();
    await changes(last);
    expect(await log.locator("span").count()).toBeLessThan(200);
    await audit(page, "run-million-log");
  });

  await test.step("a line is opened by number, linked and restored", async () => {
    const log = page.getByRole("region", { name: /^Log of attempt/ });
    await page.getByRole("spinbutton", { name: "Go to line" }).fill("500000");
    await page.keyboard.press("Enter");
    await expect(log.getByText("step 500000: loss")).toBeInViewport();
    await expect(page).toHaveURL(/#L500000$/);
    await log.getByRole("button", { name: "Link to line 500,003" }).click();
    await expect(page).toHaveURL(/[?&]attempt=1&file=rank-0\.log#L500003$/);
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("button", { name: "Copy link" }).click();
    await expect(page.getByRole("button", { name: "Copied" })).toBeVisible();
    const link = await page.evaluate(() => navigator.clipboard.readText());
    expect(link).toBe(page.url());
    await page.goto(`/${TEAM}/runs`);
    await page.goto(link);
    await expect(log.locator("[aria-current]")).toContainText("step 500003: loss");
    await expect(log.locator("[aria-current]")).toBeInViewport();
    await expect(page.getByText("Not following.")).toBeVisible();
    for (const share of [0.25, 0.75, 0]) {
      await log.evaluate((box, to) => (box.scrollTop = to * (box.scrollHeight - box.clientHeight)), share);
      await expect.poll(async () => Math.abs((await firstLine(log)) / (await stepOf(page)) - share)).toBeLessThan(0.01);
      await expect.poll(async () => log.getByText(`step ${await firstLine(log)}: `).count()).toBe(1);
    }
    await log.hover();
    await page.mouse.wheel(0, 180);
    await expect(log.getByText("step 28: loss")).toBeInViewport();
  });

  await test.step("the log is searched on the server", async () => {
    const log = page.getByRole("region", { name: /^Log of attempt/ });
    const status = page.getByRole("search").locator("..").getByRole("status");
    await page.getByRole("searchbox").fill("gradient OVERFLOW");
    await page.keyboard.press("Enter");
    for (let time = 0; time < 20 && !(await status.textContent())?.startsWith("1 of 3"); time += 1) {
      const more = page.getByRole("button", { name: "Search more" });
      if (await more.isVisible()) await more.click();
      await expect(status).toHaveText(/found/);
    }
    await expect(status).toHaveText(/^1 of 3 lines found/);
    await expect(log.getByText("step 250000: Gradient overflow")).toBeInViewport();
    await page.getByRole("button", { name: "Next" }).click();
    await expect(log.getByText("step 500001: Gradient overflow")).toBeInViewport();
    await expect(log.locator("mark").first()).toHaveText("Gradient overflow");
    await audit(page, "run-million-found");
  });

  await test.step("it is readable in the dark theme, on a tablet and on a phone", async () => {
    for (const [name, width, height] of [["tablet", 820, 1180], ["phone", 390, 844]] as const) {
      await page.emulateMedia({ colorScheme: name === "phone" ? "dark" : "light" });
      await page.setViewportSize({ width, height });
      await expect(page.locator("mark").first()).toBeVisible();
      await audit(page, `run-million-found-${name}`);
      await fits(page, width);
      await page.getByRole("link", { name: "Overview" }).click();
      if (name === "phone") await page.getByRole("button", { name: "Chart options" }).click();
      await page.getByRole("button", { name: "Zoom in" }).click();
      await expect(page.getByText(/^The last/)).toBeVisible();
      await audit(page, `run-million-${name}`);
      await fits(page, width);
      await page.getByRole("button", { name: "show all" }).click();
      await expect(page).not.toHaveURL(/last=/);
      await page.getByRole("link", { name: "Runs" }).first().click();
      await expect(page.getByRole("link", { name: "million" })).toBeVisible();
      await audit(page, `runs-all-${name}`);
      await fits(page, width);
      await page.goBack();
      await page.getByRole("link", { name: "Logs" }).click();
    }
    await page.setViewportSize({ width: 1440, height: 900 });
    await expect(page.locator("mark").first()).toBeVisible();
    await audit(page, "run-million-found-dark");
    await page.getByRole("link", { name: "Overview" }).click();
    await drag(page, plot, 0.6, 0.7);
    await expect(page.getByText(/^Steps [\d,]+ to/)).toBeVisible();
    await audit(page, "run-million-window-dark");
  });

  expect(errors).toEqual([]);
});

function isCurves(request: Request): boolean {
  return new URL(request.url()).pathname.endsWith(`/runs/${RUN}/metrics`);
}

function figure(page: Page, title: string): Locator {
  return page.locator("figure", { has: page.getByRole("heading", { name: title, exact: true }) });
}

function lossOf({ series }: Answer) {
  const found = series.find(({ name }) => name === "loss");
  if (found === undefined) throw new Error("the answer has no loss");
  return found;
}

function windowOf(page: Page): { from: number; to: number } {
  const query = new URL(page.url()).searchParams;
  return { from: Number(query.get("from")), to: Number(query.get("to")) };
}

function wordsOf({ from, to }: { from: number; to: number }): string {
  return `steps ${from.toLocaleString("en")} to ${to.toLocaleString("en")}`;
}

function width({ from, to }: { from: number; to: number }): number {
  return to - from;
}

async function changes(place: Locator): Promise<void> {
  const before = await place.textContent();
  await expect(place).not.toHaveText(before ?? "");
}

/** The caption's last value equals the server's. */
async function follows(page: Page, chart: Locator): Promise<void> {
  await expect
    .poll(async () => {
      const step = await stepOf(page);
      const answer = await page.request.get(`${new URL(page.url()).origin}/api/v1${teamOf(page)}/runs/${RUN}/metrics?names=loss&after_step=${step - 1}`);
      const { steps, values } = lossOf((await answer.json()) as Answer);
      const value = values[steps.indexOf(step)];
      return (await chart.locator("figcaption").textContent()) === `last: train ${value?.toFixed(3)}`;
    })
    .toBe(true);
}

/** The newest step in the page's header. */
async function stepOf(page: Page): Promise<number> {
  const words = await page.getByText(/^step [\d,]+/).first().textContent();
  return Number(/step ([\d,]+)/.exec(words ?? "")?.[1]?.replaceAll(",", ""));
}

/** The first rendered line. */
async function firstLine(log: Locator): Promise<number> {
  return Number(await log.getByRole("button", { name: /^Link to line/ }).first().textContent());
}

function teamOf(page: Page): string {
  return `/teams/${new URL(page.url()).pathname.split("/")[1] ?? ""}`;
}

/** Drags across a fraction of a chart. */
async function drag(page: Page, plot: Locator, from: number, to: number): Promise<void> {
  const box = await plot.locator(".u-over").boundingBox();
  if (box === null) throw new Error("the chart is not drawn");
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + from * box.width, y);
  await page.mouse.down();
  await page.mouse.move(box.x + ((from + to) / 2) * box.width, y, { steps: 5 });
  await page.mouse.move(box.x + to * box.width, y, { steps: 5 });
  await page.mouse.up();
}

async function longTasks(page: Page, milliseconds: number): Promise<number[]> {
  return page.evaluate(async (wait) => {
    const found: number[] = [];
    const observer = new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) found.push(Math.round(duration));
    });
    observer.observe({ entryTypes: ["longtask"] });
    await new Promise((resolve) => setTimeout(resolve, wait));
    observer.disconnect();
    return found;
  }, milliseconds);
}

async function fits(page: Page, width: number): Promise<void> {
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
}
