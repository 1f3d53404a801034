import { join } from "node:path";
import { AxeBuilder } from "@axe-core/playwright";
import { expect, test, type Page } from "@playwright/test";

/** All that axe judges by colours. */
export const OF_COLOURS: readonly string[] = ["color-contrast", "link-in-text-block"];

/** Keeps a picture of the page and demands that axe finds nothing wrong with it, by some rules or by all. */
export async function look(page: Page, name: string, rules?: readonly string[]): Promise<void> {
  await page.screenshot({ path: join(test.info().project.testDir, "screenshots", `${name}.png`) });
  const axe = new AxeBuilder({ page });
  const { violations } = await (rules === undefined ? axe : axe.withRules([...rules])).analyze();
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  expect(told, `axe on ${name}`).toEqual([]);
}

/** Collects what the browser complains about: errors of scripts and refusals by the content security policy. */
export function complaints(page: Page): string[] {
  const heard: string[] = [];
  page.on("pageerror", (error) => heard.push(error.message));
  page.on("console", (message) => {
    // Which answer was refused stands beside the words.
    if (message.type() === "error") heard.push(`${message.text()} (${message.location().url})`);
  });
  return heard;
}
