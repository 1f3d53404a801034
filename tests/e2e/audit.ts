import { join } from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import { expect, test, type Page } from "@playwright/test";

/** Whether every state is audited (`make browsers`); otherwise a test checks behaviour only. */
export const AUDITED = process.env["TRAINWRIGHT_E2E_AUDIT"] === "1";

/** Every axe rule that depends on the color scheme. */
export const COLOR_RULES: readonly string[] = ["color-contrast", "link-in-text-block"];

const SIZES = {
  phone: { width: 390, height: 844 },
  tablet: { width: 820, height: 1_180 },
  desktop: { width: 1_440, height: 900 },
} as const;

/** In an audited run, takes a screenshot and expects axe to find no violation, of some rules or of any. */
export async function audit(page: Page, name: string, rules?: readonly string[]): Promise<void> {
  if (!AUDITED) return;
  await screenshot(page, name);
  await expectAccessible(page, name, rules);
}

/**
 * The page in every size, light and dark: it never scrolls sideways. axe checks each scheme once, in the narrowest and the
 * widest layout. A run that is not audited checks the width on a phone only.
 */
export async function auditSizes(page: Page, name: string): Promise<void> {
  for (const [device, size] of Object.entries(SIZES)) {
    if (!AUDITED && device !== "phone") continue;
    await page.setViewportSize(size);
    if (AUDITED) {
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
        await screenshot(page, `${name}-${device}-${colorScheme}`);
        if (CHECKED.has(`${device} ${colorScheme}`)) await expectAccessible(page, `${name}-${device}-${colorScheme}`);
      }
    }
    await expectNoSidewaysScroll(page, name, size.width);
    expect(await labelsThatAreCut(page), `${name}: labels of the navigation fit at ${size.width} px`).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: "light", reducedMotion: null });
  await page.setViewportSize(SIZES.desktop);
}

const CHECKED: ReadonlySet<string> = new Set(["phone light", "desktop dark"]);

export async function expectAccessible(page: Page, name: string, rules?: readonly string[]): Promise<void> {
  const axe = new AxeBuilder({ page });
  const { violations } = await (rules === undefined ? axe : axe.withRules([...rules])).analyze();
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  expect(found, `axe on ${name}`).toEqual([]);
}

export async function expectNoSidewaysScroll(page: Page, name: string, width: number): Promise<void> {
  expect(await page.evaluate(() => document.documentElement.scrollWidth), `${name} does not scroll sideways at ${width} px`).toBe(width);
}

/** Labels of the navigation that reach beyond their link or button. The number of unread notices may; a team's name ends with an ellipsis. */
async function labelsThatAreCut(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const controls = [...document.querySelectorAll<HTMLElement>("nav[aria-label=Main] :is(a, button)")].filter(
      (control) => control.clientWidth > 0 && control.querySelector(".truncate") === null,
    );
    return controls.flatMap((control) => {
      const label = document.createRange();
      label.selectNodeContents([...control.childNodes].find(({ nodeType }) => nodeType === Node.TEXT_NODE) ?? control);
      const [inner, outer] = [label.getBoundingClientRect(), control.getBoundingClientRect()];
      return inner.left < outer.left || inner.right > outer.right ? [control.textContent] : [];
    });
  });
}

/** Collects what the browser reports: script errors and what the content security policy blocks. */
export function browserErrors(page: Page): string[] {
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    // The blocked address is not part of the text.
    if (message.type() === "error") errors.push(`${message.text()} (${message.location().url})`);
  });
  return errors;
}

async function screenshot(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(test.info().project.testDir, "screenshots", `${name}.png`) });
}
