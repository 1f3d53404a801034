import { writeFileSync } from "node:fs";
import { expect, test, type Browser, type Locator, type Page } from "@playwright/test";
import { complaints, look } from "./look";

const [DONE = "", LONG = "", DATASET = ""] = (process.env["TRAINWRIGHT_E2E_IDS"] ?? "").split(",");
const SWITCH = process.env["TRAINWRIGHT_E2E_SWITCH"] ?? "";
const LOST = /^Not connected since \d\d:\d\d\. What you see is from then; your runs go on\./;

interface Answer {
  series: { name: string; steps: number[] }[];
}

/** A page that stays open while the API goes away and the network breaks, and a viewer who sees all and may do nothing. */
test("a run is watched through a reload, a restart and a break, and by a viewer", async ({ page, browser }) => {
  const heard = complaints(page);
  await page.goto(process.env["TRAINWRIGHT_E2E_LINK"] ?? "");
  await page.getByRole("main").getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(/\/crew\b/);
  const invited = await page.request.post("/api/v1/teams/crew/invitations", { data: { email: "vera@example.org", role: "viewer" } });
  expect(invited.status()).toBe(201);
  const { link } = (await invited.json()) as { link: string };

  await page.goto(`/crew/runs/${LONG}/overview`);
  await expect(page.getByText("Running").first()).toBeVisible({ timeout: 120_000 });
  const loss = page.locator("figure").filter({ has: page.getByRole("heading", { name: "loss", exact: true }) });
  await moves(loss);

  await test.step("a reload loses nothing", async () => {
    await page.reload();
    await moves(loss);
    await everyStepOnce(page, loss);
  });

  await test.step("the API goes away and comes back: the page says so, and the chart goes on", async () => {
    const before = Math.max(...(await stepsIn(loss)));
    writeFileSync(SWITCH, "down");
    await expect(page.getByText(LOST)).toBeVisible({ timeout: 60_000 });
    await look(page, "api-away");
    writeFileSync(SWITCH, "up");
    await expect(page.getByText(LOST)).toBeHidden({ timeout: 60_000 });
    await moves(loss);
    expect(Math.max(...(await stepsIn(loss)))).toBeGreaterThan(before);
    await everyStepOnce(page, loss);
  });

  await test.step("the network breaks and mends", async () => {
    const before = Math.max(...(await stepsIn(loss)));
    // What the browser has open already, such as the stream of the numbers, it leaves open.
    await page.context().setOffline(true);
    await expect(page.getByText(LOST)).toBeVisible({ timeout: 60_000 });
    await page.context().setOffline(false);
    await expect(page.getByText(LOST)).toBeHidden({ timeout: 60_000 });
    await moves(loss);
    expect(Math.max(...(await stepsIn(loss)))).toBeGreaterThan(before);
    await everyStepOnce(page, loss);
    await expect(page.getByText("live", { exact: true })).toBeVisible();
  });

  await test.step("a viewer comes in by an invitation, sees every page, and is offered nothing that is refused", async () => {
    await viewer(browser, link);
  });

  // What does not answer is told in the console too.
  expect(heard.filter((words) => !/ERR_(CONNECTION|INTERNET|INCOMPLETE|EMPTY|NETWORK|ABORTED|FAILED)/.test(words))).toEqual([]);
});

/** What only editors and owners do, by the words on its buttons, links and menus. */
const VERBS =
  /^(New run|Pause|Resume|Cancel|Fork|Name, tags|Delete|Remove|Edit|Tag|Pin|Thin out|Change layout|Mix datasets|New version|Create|Upload|Prepare|choose files|choose a folder|Start run|Drain|Rename|Save|Invite|Revoke|Add)/i;

async function viewer(browser: Browser, link: string): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, colorScheme: "light", locale: "en-GB" });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const heard = complaints(page);
  await page.goto(link);
  await page.getByLabel("Your name").fill("Vera");
  await page.getByLabel("Password").fill("a long enough password");
  await page.getByRole("main").getByRole("button").click();
  await page.waitForURL(/\/crew\b/);
  const items: string[] = [];
  for (const [path, sign] of PAGES) {
    await page.goto(`/crew${path}`);
    await expect(page.getByRole("main").getByText(sign).first(), `${path} works`).toBeVisible();
    expect(await verbsOn(page), `${path} offers no verb`).toEqual([]);
    items.push(...(await inMenus(page)));
    await look(page, `viewer${path.replace(/\W+|(run|ds)_\w+/g, "-")}`);
  }
  for (const word of ["As at first", "By curl or Python"]) expect(items, "the menus of columns and of checkpoints were opened").toContain(word);
  expect(items.filter((words) => VERBS.test(words))).toEqual([]);
  await test.step("keys and the palette offer nothing either", async () => {
    await page.goto(`/crew/runs/${LONG}/overview`);
    await expect(page.getByRole("heading", { name: "long", level: 1 })).toBeVisible();
    for (const key of ["e", "n"]) await page.keyboard.press(key);
    await expect(page.getByRole("dialog")).toHaveCount(0);
    await expect(page).toHaveURL(/\/overview$/);
    await page.keyboard.press("Control+k");
    await expect(page.getByRole("option", { name: "Home" })).toBeVisible();
    const offered = await page.getByRole("option").allTextContents();
    expect(offered.filter((words) => VERBS.test(words))).toEqual([]);
    await page.keyboard.press("Escape");
    await page.goto("/crew/runs/new");
    await expect(page.getByText("Viewers cannot start runs.")).toBeVisible();
  });
  await test.step("a viewer may still take weights home and have keys", async () => {
    await page.goto(`/crew/runs/${DONE}/checkpoints`);
    await expect(page.getByRole("link", { name: /Download .tar of step 30, Weights/ })).toBeVisible();
    await page.goto("/crew/settings");
    await page.getByLabel("Name of the new key").fill("laptop");
    // What comes above moves the button.
    await expect(page.getByLabel("Loading")).toHaveCount(0);
    await page.getByRole("button", { name: "Create key" }).click();
    await expect(page.getByText("Copy it now")).toBeVisible();
  });
  expect(heard).toEqual([]);
  await context.close();
}

/** Every page of a team that a viewer has, and what stands there once it has loaded. */
const PAGES: readonly (readonly [string, string | RegExp])[] = [
  ["", "Runs now"],
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

async function verbsOn(page: Page): Promise<string[]> {
  const found: string[] = [];
  for (const role of ["button", "link"] as const) {
    for (const one of await page.getByRole("main").getByRole(role).all()) {
      const words = (await one.getAttribute("aria-label")) ?? (await one.innerText());
      if (VERBS.test(words.trim())) found.push(words);
    }
  }
  for (const input of await page.locator("main input[type=file]").all()) found.push((await input.getAttribute("aria-label")) ?? "file input");
  return found;
}

/** What the menus of the page do, each opened in turn; what is ticked in one, such as a state or a column, does nothing to a run. */
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

/** The newest value of a chart changes. */
async function moves(chart: Locator): Promise<void> {
  const caption = chart.locator("figcaption");
  await expect(caption).toContainText(/last train [\d.]+/, { timeout: 60_000 });
  const before = await caption.textContent();
  await expect(caption).not.toHaveText(before ?? "", { timeout: 60_000 });
}

/** Every step from the first on stands in the page once, and in the answer. */
async function everyStepOnce(page: Page, chart: Locator): Promise<void> {
  const shown = await stepsIn(chart);
  expect(shown).toEqual(upTo(Math.max(...shown)));
  const answer = await page.request.get(`/api/v1/teams/crew/runs/${LONG}/metrics?names=loss`);
  const { series } = (await answer.json()) as Answer;
  const stored = series.find(({ name }) => name === "loss")?.steps ?? [];
  expect(stored).toEqual(upTo(stored.length));
  expect(stored.length).toBeGreaterThanOrEqual(shown.length);
}

/** The steps of a chart's table, oldest first; it has a row for each as long as they are at most a hundred. */
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
