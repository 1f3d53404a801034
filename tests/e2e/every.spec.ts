import { expect, test, type Browser, type Locator, type Page } from "@playwright/test";
import { complaints, look, OF_COLOURS } from "./look";

const [DONE = "", HELD = "", DATASET = ""] = (process.env["TRAINWRIGHT_E2E_IDS"] ?? "").split(",");
const SIZES = [
  { width: 390, height: 844 },
  { width: 1_440, height: 900 },
] as const;
const COLOURS = ["light", "dark"] as const;

interface Place {
  path: string;
  /** What stands there once its data has come. */
  sign: (main: Locator) => Locator;
  /** What the console may say of it. */
  excused?: RegExp;
}

/** A page, by some of the data in it: its heading is there before. */
function place(path: string, words: string | RegExp): Place {
  return { path, sign: (main) => main.getByText(words).filter({ visible: true }).first() };
}

/** Every address of the application but links, which are used up by a look. */
const PLACES: readonly Place[] = [
  place("/crew", "held"),
  place("/crew/runs", "eight bits"),
  place("/crew/runs/new", "not measured yet"),
  place(`/crew/runs/new?fork=${DONE}`, /at step 30, saved/),
  place(`/crew/runs/${DONE}/overview`, /last train [\d.]+, validation [\d.]+/),
  place(`/crew/runs/${DONE}/fp8`, /last clamped [\d.e-]+/),
  place(`/crew/runs/${DONE}/logs`, /step 30\s+loss/),
  place(`/crew/runs/${DONE}/events`, "submitted by Ada"),
  place(`/crew/runs/${DONE}/checkpoints`, "Weights"),
  place(`/crew/runs/${DONE}/configuration`, "learning rate"),
  place(`/crew/compare?runs=${DONE},${HELD}`, /last eight bits [\d.]+, held [\d.]+/),
  place("/crew/datasets", "letters"),
  place(`/crew/datasets/${DATASET}`, "Ready"),
  place("/crew/checkpoints", "Weights"),
  { path: "/crew/nodes", sign: (main) => main.getByRole("list", { name: /^Slots of/ }).getByText("free").first() },
  place("/crew/usage", "CPU slot-hours by day"),
  place("/crew/settings", "ada@example.org"),
  place("/crew/nothing/of/the/kind", "There is nothing here"),
  { ...place("/crew/runs/run_none/overview", "There is no run"), excused: /status of 404.*\/runs\/run_none\b|There is no run/ },
];

const SIGNED_OUT: readonly Place[] = [place("/sign-in", "No account yet?"), place("/link/used", "Sign in with your password"), place("/link/a/b", "There is nothing here")];

test("every page, light and dark, on a phone and on a wide screen", async ({ page }) => {
  test.setTimeout(600_000);
  await page.goto(process.env["TRAINWRIGHT_E2E_LINK"] ?? "");
  await page.getByRole("main").getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(/\/crew/);
  const heard = complaints(page);
  for (const one of PLACES) {
    await everyWay(page, one);
    expect(heard.splice(0).filter((words) => one.excused?.test(words) !== true), one.path).toEqual([]);
  }
});

test("the pages of somebody who is not signed in", async ({ browser }) => {
  const page = await stranger(browser);
  for (const one of SIGNED_OUT) await everyWay(page, one);
  await page.goto("/crew/runs");
  await expect(page, "who is not known is asked who it is").toHaveURL(/\/sign-in\?next=/);
  await page.context().close();
});

async function stranger(browser: Browser): Promise<Page> {
  const context = await browser.newContext({ locale: "en-GB" });
  return context.newPage();
}

/** One page at both sizes in both colours, loaded anew at each size; nothing is wider than the screen. */
async function everyWay(page: Page, { path, sign }: Place): Promise<void> {
  const name = path.replace(/(run|ds)_\w+/g, "x").replace(/\W+/g, "-");
  await test.step(path, async () => {
    for (const size of SIZES) {
      await page.setViewportSize(size);
      await page.goto(path);
      await expect(sign(page.getByRole("main")), `${path} has its data`).toBeVisible();
      await expect(page.getByLabel("Loading")).toHaveCount(0);
      for (const colorScheme of COLOURS) {
        await page.emulateMedia({ colorScheme });
        // What is the same in both colours is judged once.
        await look(page, `every${name}-${size.width}-${colorScheme}`, colorScheme === "light" ? undefined : OF_COLOURS);
      }
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(wide, `${path} does not scroll sideways at ${size.width}`).toBe(size.width);
    }
  });
}
