import { expect, test, type Browser, type Locator, type Page } from "@playwright/test";
import { AUDITED, audit, browserErrors, COLOR_RULES, expectAccessible, expectNoSidewaysScroll } from "./audit";
import { signIn, TEAM } from "./session";

const [DONE = "", HELD = "", DATASET = ""] = (process.env["TRAINWRIGHT_E2E_IDS"] ?? "").split(",");
const PHONE = { width: 390, height: 844 };
const DESKTOP = { width: 1_440, height: 900 };
const SIZES = [PHONE, DESKTOP];
const COLOR_SCHEMES = ["light", "dark"] as const;

interface PageToCheck {
  path: string;
  /** What the page shows once its data has loaded. */
  findData: (main: Locator) => Locator;
  /** Console errors that are expected here. */
  expectedErrors?: RegExp;
}

/** A page, recognized by some of its data: its heading is shown before that has loaded. */
function pageWith(path: string, text: string | RegExp): PageToCheck {
  return { path, findData: (main) => main.getByText(text).filter({ visible: true }).first() };
}

/** Every address of the application except one-time links, which can be opened only once. */
const PAGES: readonly PageToCheck[] = [
  pageWith(`/${TEAM}`, "held"),
  pageWith(`/${TEAM}/runs`, "eight bits"),
  pageWith(`/${TEAM}/runs/new`, /^(over |not measured yet)/),
  pageWith(`/${TEAM}/runs/new?fork=${DONE}`, /at step 30, saved/),
  pageWith(`/${TEAM}/runs/${DONE}/overview`, /last: train [\d.]+, validation [\d.]+/),
  pageWith(`/${TEAM}/runs/${DONE}/fp8`, /last: clamped [\d.e-]+/),
  pageWith(`/${TEAM}/runs/${DONE}/samples?beside=10`, "the ship"),
  pageWith(`/${TEAM}/runs/${DONE}/logs`, /step 30\s+loss/),
  pageWith(`/${TEAM}/runs/${DONE}/events`, "submitted by Ada"),
  pageWith(`/${TEAM}/runs/${DONE}/checkpoints`, "Weights"),
  pageWith(`/${TEAM}/runs/${DONE}/configuration`, "learning rate"),
  pageWith(`/${TEAM}/compare?runs=${DONE},${HELD}`, /last: eight bits [\d.]+, held [\d.]+/),
  pageWith(`/${TEAM}/queue`, "No run is waiting."),
  pageWith(`/${TEAM}/datasets`, "letters"),
  pageWith(`/${TEAM}/datasets/${DATASET}`, "Ready"),
  pageWith(`/${TEAM}/checkpoints`, "Weights"),
  { path: `/${TEAM}/nodes`, findData: (main) => main.getByRole("list", { name: /^Slots of/ }).getByText("free").first() },
  pageWith(`/${TEAM}/usage`, "CPU slot-hours by day"),
  pageWith(`/${TEAM}/notices`, /is done: loss/),
  pageWith(`/${TEAM}/settings`, "ada@example.org"),
  pageWith(`/${TEAM}/settings/notices`, "Your run failed"),
  pageWith(`/${TEAM}/settings/keys`, "This browser"),
  pageWith(`/${TEAM}/settings/members`, "ada@example.org"),
  pageWith(`/${TEAM}/settings/service-accounts`, "No service accounts yet."),
  pageWith(`/${TEAM}/settings/limits`, "Runs at once"),
  pageWith(`/${TEAM}/settings/webhooks`, "No webhooks yet."),
  pageWith(`/${TEAM}/settings/audit`, "Submitted run"),
  pageWith(`/${TEAM}/settings/delete-team`, "A deleted team cannot be restored."),
  pageWith(`/${TEAM}/settings/new-team`, "Short name"),
  pageWith(`/${TEAM}/settings/site-audit`, "Download all"),
  pageWith("/sign-in/device", "The program shows it"),
  pageWith(`/${TEAM}/nothing/of/the/kind`, "Page not found"),
  { ...pageWith(`/${TEAM}/runs/run_none/overview`, "There is no run"), expectedErrors: /status of 404.*\/runs\/run_none\b/ },
];

const SIGNED_OUT_PAGES: readonly PageToCheck[] = [
  pageWith("/sign-in", "No account yet?"),
  pageWith("/link/used", "Sign in with your password"),
  pageWith("/link/a/b", "Page not found"),
];

test("every page, light and dark, on a phone and on a wide screen", async ({ page }) => {
  await signIn(page);
  const errors = browserErrors(page);
  for (const target of PAGES) {
    await checkPage(page, target);
    expect(errors.splice(0).filter((text) => target.expectedErrors?.test(text) !== true), target.path).toEqual([]);
  }
});

test("the signed-out pages", async ({ browser }) => {
  const page = await signedOutPage(browser);
  for (const target of SIGNED_OUT_PAGES) await checkPage(page, target);
  await page.goto(`/${TEAM}/runs`);
  await expect(page, "signed-out visitors are sent to the sign-in page").toHaveURL(/\/sign-in\?next=/);
  await page.context().close();
});

async function signedOutPage(browser: Browser): Promise<Page> {
  const context = await browser.newContext({ locale: "en-GB" });
  return context.newPage();
}

/** One page at both sizes in both color schemes, reloaded at each size; in a run that is not audited, once for axe. */
async function checkPage(page: Page, { path, findData }: PageToCheck): Promise<void> {
  const name = path.replace(/(run|ds)_(?!none)\w+/g, "x").replaceAll(TEAM, "team").replace(/\W+/g, "-");
  await test.step(path, async () => {
    for (const size of AUDITED ? SIZES : [DESKTOP]) {
      await page.setViewportSize(size);
      await page.goto(path);
      await expect(findData(page.getByRole("main")), `${path} shows its data`).toBeVisible();
      await expect(page.getByLabel("Loading")).toHaveCount(0);
      if (AUDITED) {
        for (const colorScheme of COLOR_SCHEMES) {
          await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
          // Rules that do not depend on colors are checked once.
          await audit(page, `every${name}-${size.width}-${colorScheme}`, colorScheme === "light" ? undefined : COLOR_RULES);
        }
      } else {
        await expectAccessible(page, path);
        await page.setViewportSize(PHONE);
      }
      await expectNoSidewaysScroll(page, path, (AUDITED ? size : PHONE).width);
    }
  });
}
