import { writeFileSync } from "node:fs";
import { expect, test, type Browser, type Locator, type Page } from "@playwright/test";
import { audit, browserErrors } from "./audit";
import { signIn, submitLink, TEAM } from "./session";

const [DONE = "", LONG = "", DATASET = ""] = (process.env["TRAINWRIGHT_E2E_IDS"] ?? "").split(",");
const SWITCH = process.env["TRAINWRIGHT_E2E_SWITCH"] ?? "";
const LOST = /^Disconnected since \d\d:\d\d\. This page shows no newer data; your runs continue\./;

interface Answer {
  series: { name: string; steps: number[] }[];
}

/** A page stays open through an API restart and a lost network; a viewer sees every page and is offered no change. */
test("a run is watched through a reload, a restart and a disconnect, and by a viewer", async ({ page, browser }) => {
  const errors = browserErrors(page);
  await signIn(page);
  const invited = await page.request.post(`/api/v1/teams/${TEAM}/invitations`, { data: { email: `vera@${TEAM}.example.org`, role: "viewer" } });
  expect(invited.status()).toBe(201);
  const { link } = (await invited.json()) as { link: string };

  await page.goto(`/${TEAM}/runs/${LONG}/overview`);
  await expect(page.getByText("Running").first()).toBeVisible({ timeout: 120_000 });
  const loss = page.locator("figure").filter({ has: page.getByRole("heading", { name: "loss", exact: true }) });
  await moves(loss);

  await test.step("a reload loses nothing", async () => {
    await page.reload();
    await moves(loss);
    await everyStepOnce(page, loss);
  });

  await test.step("the API restarts: the page says so, and the chart continues", async () => {
    // The service worker needs the API to install.
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null, null, { timeout: 60_000 });
    const before = Math.max(...(await stepsIn(loss)));
    writeFileSync(SWITCH, "down");
    await expect(page.getByText(LOST)).toBeVisible({ timeout: 60_000 });
    await audit(page, "api-away");
    writeFileSync(SWITCH, "up");
    await expect(page.getByText(LOST)).toBeHidden({ timeout: 60_000 });
    await moves(loss);
    expect(Math.max(...(await stepsIn(loss)))).toBeGreaterThan(before);
    await everyStepOnce(page, loss);
  });

  await test.step("a page that was never opened says that the server is away, also after a reload, and opens once it is back", async () => {
    writeFileSync(SWITCH, "down");
    await expect(page.getByText(LOST)).toBeVisible({ timeout: 60_000 });
    for (const open of [() => page.goto(`/${TEAM}/usage`), () => page.reload()]) {
      await open();
      await expect(page.getByRole("heading", { name: "The server cannot be reached" })).toBeVisible();
      await expect(page.getByText(LOST)).toBeVisible();
    }
    await audit(page, "server-away");
    expect(await page.evaluate(storedAddresses)).toEqual(expect.arrayContaining(["/index.html", "/favicon.svg"]));
    expect((await page.evaluate(storedAddresses)).filter((path) => !/^\/(assets\/.+|index\.html|favicon\.svg)$/.test(path))).toEqual([]);
    writeFileSync(SWITCH, "up");
    await expect(page.getByText("CPU slot-hours by day")).toBeVisible({ timeout: 60_000 });
    await page.goBack();
    await moves(loss);
  });

  await test.step("the network is lost and restored", async () => {
    const before = Math.max(...(await stepsIn(loss)));
    // Going offline does not close connections that are already open, such as the metrics stream.
    await page.context().setOffline(true);
    await expect(page.getByText(LOST)).toBeVisible({ timeout: 60_000 });
    await page.context().setOffline(false);
    await expect(page.getByText(LOST)).toBeHidden({ timeout: 60_000 });
    await moves(loss);
    expect(Math.max(...(await stepsIn(loss)))).toBeGreaterThan(before);
    await everyStepOnce(page, loss);
    await expect(page.getByText("live", { exact: true })).toBeVisible();
  });

  await test.step("an invited viewer sees every page, and is offered no forbidden action", async () => {
    await viewer(browser, link);
  });

  // The console also reports requests without a response, and React the error that a page shows instead.
  expect(errors.filter((words) => !/^ConnectionError: |ERR_(CONNECTION|INTERNET|INCOMPLETE|EMPTY|NETWORK|ABORTED|FAILED)/.test(words))).toEqual([]);
});

/** Actions of editors and owners, by the text of buttons, links and menu items. Everyone can save views. */
const FORBIDDEN_ACTIONS =
  /^(New run|Pause|Resume|Cancel|Fork|Name, tags|Delete|Remove(?! .+ from the comparison)|Edit|Tag|Pin|Clean up|Change layout|Mix datasets|New version|Create|Upload|Prepare|Choose files|Choose a folder|Start run|Drain|Rename|Save(?! this view)|Invite|Revoke|Add)/;

async function viewer(browser: Browser, link: string): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: "light", locale: "en-GB" });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const errors = browserErrors(page);
  await page.goto(link);
  await page.getByLabel("Your name").fill("Vera");
  await page.getByLabel("Password").fill("a long enough password");
  await submitLink(page);
  await page.waitForURL((url) => url.pathname.startsWith(`/${TEAM}`));
  const items: string[] = [];
  for (const [path, sign] of PAGES) {
    await page.goto(`/${TEAM}${path}`);
    await expect(page.getByRole("main").getByText(sign).first(), `${path} works`).toBeVisible();
    expect(await forbiddenActionsOn(page), `${path} offers no forbidden action`).toEqual([]);
    items.push(...(await inMenus(page)));
    await audit(page, `viewer${path.replace(/\W+|(run|ds)_\w+/g, "-")}`);
  }
  for (const word of ["Reset columns", "Download with curl or Python"]) expect(items, "the menus of columns and of checkpoints were opened").toContain(word);
  expect(items.filter((words) => FORBIDDEN_ACTIONS.test(words))).toEqual([]);
  await test.step("shortcuts and the palette offer none either", async () => {
    await page.goto(`/${TEAM}/runs/${LONG}/overview`);
    await expect(page.getByRole("heading", { name: "long", level: 1 })).toBeVisible();
    for (const key of ["e", "n"]) await page.keyboard.press(key);
    await expect(page.getByRole("dialog")).toHaveCount(0);
    await expect(page).toHaveURL(/\/overview$/);
    await page.keyboard.press("Control+k");
    await expect(page.getByRole("option", { name: "Home" })).toBeVisible();
    const offered = await page.getByRole("option").allTextContents();
    expect(offered.filter((words) => FORBIDDEN_ACTIONS.test(words))).toEqual([]);
    await page.keyboard.press("Escape");
    await page.goto(`/${TEAM}/runs/new`);
    await expect(page.getByText("Viewers cannot start runs.")).toBeVisible();
  });
  await test.step("a viewer may still download weights and create API keys", async () => {
    await page.goto(`/${TEAM}/runs/${DONE}/checkpoints`);
    await expect(page.getByRole("link", { name: /Download .tar of step 30, Weights/ })).toBeVisible();
    await page.goto(`/${TEAM}/settings/keys`);
    await page.getByLabel("Name of the new key").fill("laptop");
    // Content that loads above moves the button.
    await expect(page.getByLabel("Loading")).toHaveCount(0);
    await page.getByRole("button", { name: "Create key" }).click();
    await expect(page.getByText("Copy it now")).toBeVisible();
  });
  expect(errors).toEqual([]);
  await context.close();
}

/** Every team page that a viewer can open, and the text it shows once loaded. */
const PAGES: readonly (readonly [string, string | RegExp])[] = [
  ["", "Running now"],
  ["/runs", "short"],
  [`/runs/${LONG}/overview`, "Running"],
  [`/runs/${DONE}/logs`, "rank 0"],
  [`/runs/${DONE}/events`, "submitted by"],
  [`/runs/${DONE}/checkpoints`, "Weights"],
  [`/runs/${DONE}/configuration`, "learning rate"],
  [`/compare?runs=${DONE},${LONG}`, "short"],
  ["/datasets", "letters"],
  [`/datasets/${DATASET}`, "Ready"],
  ["/checkpoints", "Weights"],
  ["/usage", "CPU slot-hours by day"],
];

async function forbiddenActionsOn(page: Page): Promise<string[]> {
  const found: string[] = [];
  for (const role of ["button", "link"] as const) {
    for (const control of await page.getByRole("main").getByRole(role).all()) {
      const words = (await control.getAttribute("aria-label")) ?? (await control.innerText());
      if (FORBIDDEN_ACTIONS.test(words.trim())) found.push(words);
    }
  }
  for (const input of await page.locator("main input[type=file]").all()) found.push((await input.getAttribute("aria-label")) ?? "file input");
  return found;
}

/** The items of each menu on the page. Checkboxes such as states and columns do not change a run. */
async function inMenus(page: Page): Promise<string[]> {
  const found: string[] = [];
  for (const button of await page.getByRole("main").locator("button[aria-haspopup=menu]:visible").all()) {
    await button.click();
    await expect(page.getByRole("menu")).toBeVisible();
    found.push(...(await page.getByRole("menu").getByRole("menuitem").allTextContents()).map((words) => words.trim()));
    await page.keyboard.press("Escape");
    await expect(page.getByRole("menu")).toBeHidden();
  }
  return found;
}

/** Every address that this browser stores. */
async function storedAddresses(): Promise<string[]> {
  const found: string[] = [];
  for (const name of await caches.keys()) {
    for (const { url } of await (await caches.open(name)).keys()) found.push(new URL(url).pathname);
  }
  return found;
}

/** A chart's latest value changes. */
async function moves(chart: Locator): Promise<void> {
  const caption = chart.locator("figcaption");
  await expect(caption).toContainText(/last: train [\d.]+/, { timeout: 60_000 });
  const before = await caption.textContent();
  await expect(caption).not.toHaveText(before ?? "", { timeout: 60_000 });
}

/** Every step is in the page and in the response exactly once. */
async function everyStepOnce(page: Page, chart: Locator): Promise<void> {
  const shown = await stepsIn(chart);
  expect(shown).toEqual(upTo(Math.max(...shown)));
  const answer = await page.request.get(`/api/v1/teams/${TEAM}/runs/${LONG}/metrics?names=loss`);
  const { series } = (await answer.json()) as Answer;
  const stored = series.find(({ name }) => name === "loss")?.steps ?? [];
  expect(stored).toEqual(upTo(stored.length));
  expect(stored.length).toBeGreaterThanOrEqual(shown.length);
}

/** The steps of a chart's table, oldest first; the table has a row per step up to a hundred. */
async function stepsIn(chart: Locator): Promise<number[]> {
  const turn = chart.getByRole("button", { name: / as a table$/ });
  await turn.click();
  const steps = await chart.locator("tbody tr td:first-child").allTextContents();
  await turn.click();
  return steps.map(Number).reverse();
}

function upTo(last: number): number[] {
  return Array.from({ length: last }, (_, index) => index + 1);
}
