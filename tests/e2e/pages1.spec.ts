import { join } from "node:path";
import { expect, test, type Locator, type Page } from "@playwright/test";
import { complaints, look } from "./look";

const SIZES = [390, 820, 1_440] as const;

/** A person lives in the pages before and around a run: home, the form and its YAML, the table, usage. */
test("from the home page through a run written as YAML to many runs at once", async ({ page }) => {
  test.setTimeout(500_000);
  const heard = complaints(page);
  await page.goto(process.env["TRAINWRIGHT_E2E_LINK"] ?? "");
  await page.getByRole("main").getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveTitle(/^Home · .+ · Trainwright$/);
  await expect(page.getByText("Nothing failed since you looked.")).toBeVisible();
  await everywhere(page, "home");

  await test.step("a run is written as YAML, refused at its line, mended, and stands in the form", async () => {
    await page.keyboard.press("n");
    await page.getByRole("radiogroup", { name: "How to write it" }).getByText("YAML").click();
    await expect(page).toHaveURL(/view=YAML/);
    const text = page.getByLabel("Configuration as YAML");
    const dataset = /dataset: (\S+)/.exec(await text.inputValue())?.[1] ?? "";
    await text.fill(written(dataset).replace("width: 64", "width: 63"));
    await page.getByRole("button", { name: "line 8, model.width" }).click();
    await expect(text).toBeFocused();
    expect(await text.evaluate((area: HTMLTextAreaElement) => area.value.slice(area.selectionStart, area.selectionEnd))).toBe("  width: 63");
    await everywhere(page, "new-run-yaml-refused");
    await text.fill(written(dataset));
    const estimate = page.getByRole("region", { name: "Estimate" });
    await expect(estimate).toContainText(/as measured: [\d,.]+ tokens\/s in short on/, { timeout: 30_000 });
    await expect(estimate).toContainText(/petaFLOP\/s-days/);
    await page.getByRole("radiogroup", { name: "How to write it" }).getByText("form").click();
    await expect(page.getByLabel("Width", { exact: true })).toHaveValue("64");
    await page.getByLabel("Name", { exact: true }).fill("night 2");
    await everywhere(page, "new-run-form");
    await page.getByRole("radiogroup", { name: "How to write it" }).getByText("YAML").click();
    await expect(text).toHaveValue(/name: night 2 # the second/);
  });

  await test.step("it is kept as a recipe, started, and the next one is filled in from it", async () => {
    await page.getByRole("button", { name: "Save as recipe" }).click();
    await page.getByLabel("Name of the recipe").fill("nightly");
    await look(page, "recipe-save");
    await page.getByRole("dialog").getByRole("button", { name: "Save recipe" }).click();
    await expect(page.getByRole("dialog")).toBeHidden();
    await page.getByRole("button", { name: "Start run" }).click();
    await expect(page.getByRole("heading", { name: "night 2", level: 1 })).toBeVisible();
    await page.getByRole("link", { name: "Runs" }).first().click();
    await page.keyboard.press("n");
    await page.getByLabel("Recipe").selectOption("nightly");
    await expect(page.getByLabel("Steps", { exact: true })).toHaveValue("50000");
    await page.getByLabel("Name", { exact: true }).fill("night 3");
    await page.getByRole("button", { name: "Start run" }).click();
    await expect(page.getByRole("heading", { name: "night 3", level: 1 })).toBeVisible();
    await page.getByRole("link", { name: "Home" }).click();
    await expect(table(page, "Runs now").or(table(page, "Runs that wait")).first()).toBeVisible();
    await everywhere(page, "home-busy");
  });

  await test.step("runs are chosen by keyboard, tagged, and found by their tag", async () => {
    await page.getByRole("link", { name: "Runs", exact: true }).click();
    await expect(row(page, "night 3")).toBeVisible();
    for (const key of ["j", "x", "j", "x"]) await page.keyboard.press(key);
    await expect(page.getByText("2 selected")).toBeVisible();
    await page.getByRole("button", { name: "Tag", exact: true }).click();
    await page.getByLabel("New tags").fill("week-47 nightly");
    await look(page, "runs-tag");
    await page.getByRole("button", { name: "Save tags" }).click();
    await expect(row(page, "night 3").getByText("week-47")).toBeVisible();
    await everywhere(page, "runs-chosen");
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.keyboard.type("tag:week-47 ");
    await expect(page).toHaveURL(/tag=/);
    await expect(row(page, "short")).toBeHidden();
    await expect(row(page, "night 2")).toBeVisible();
    await page.getByRole("button", { name: "Clear filters" }).click();
    await expect(row(page, "short")).toBeVisible();
  });

  await test.step("on a phone runs are chosen by hand, and the verbs stay in sight", async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    const box = page.getByLabel("Choose night 3");
    await expect(box).toBeHidden();
    await page.getByRole("button", { name: "Select" }).click();
    // Anywhere in its cell: beside it, the row opens.
    const cell = await row(page, "night 3").getByRole("cell").first().boundingBox();
    if (cell === null) throw new Error("no cell to press");
    await page.mouse.click(cell.x + 3, cell.y + 3);
    await expect(box).toBeChecked();
    await page.mouse.click(cell.x + cell.width - 3, cell.y + cell.height - 3);
    await expect(box).not.toBeChecked();
    await box.check();
    await page.getByLabel("Choose night 2").check();
    await expect(page.getByText("2 selected")).toBeInViewport();
    await expect(page.getByRole("button", { name: "Compare" })).toBeInViewport();
    await look(page, "runs-chosen-phone");
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
    await page.getByRole("button", { name: "Done" }).click();
    await expect(box).toBeHidden();
    await page.setViewportSize({ width: 1_440, height: 900 });
  });

  await test.step("columns are chosen, stand in the address and are there the next time", async () => {
    await page.getByRole("button", { name: "Columns" }).click();
    await page.getByRole("menuitemcheckbox", { name: "learning rate" }).click();
    await look(page, "runs-columns");
    await page.keyboard.press("Escape");
    await expect(page).toHaveURL(/columns=.*learning_rate/);
    await page.getByRole("link", { name: "Home" }).click();
    await page.getByRole("link", { name: "Runs", exact: true }).click();
    await expect(page.getByRole("columnheader", { name: "rate", exact: true })).toBeVisible();
  });

  await test.step("many are paused, resumed, cancelled and deleted at once", async () => {
    for (const name of ["night 2", "night 3"]) await page.getByLabel(`Choose ${name}`).check();
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await expect(page.getByText("Paused", { exact: true })).toHaveCount(2, { timeout: 90_000 });
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await expect(page.getByText("Paused", { exact: true })).toHaveCount(0, { timeout: 60_000 });
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await look(page, "runs-cancel");
    await page.getByRole("button", { name: "Cancel runs" }).click();
    await expect(page.getByText("Cancelled", { exact: true })).toHaveCount(2, { timeout: 90_000 });
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await expect(page.getByRole("dialog")).toContainText(/This frees .+ with \d+ checkpoints?/);
    await look(page, "runs-delete");
    await page.getByRole("button", { name: "Delete 2 runs" }).click();
    await expect(row(page, "night 2")).toBeHidden();
    await expect(row(page, "short")).toBeVisible();
  });

  await test.step("usage says what was used, as bars and as a table", async () => {
    await page.getByRole("link", { name: "Usage" }).click();
    await expect(page.getByText("CPU slot-hours by day")).toBeVisible();
    await everywhere(page, "usage");
    await page.getByRole("button", { name: "As a table" }).click();
    await expect(table(page, "CPU slot-hours by day").getByRole("row")).toHaveCount(31);
    await page.getByRole("radiogroup", { name: "Days looked at" }).getByText("7", { exact: true }).click();
    await expect(page).toHaveURL(/days=7|days=%227%22/);
    await expect(table(page, "CPU slot-hours by day").getByRole("row")).toHaveCount(8);
    await expect(table(page, "Runs that used most")).toContainText("short");
    await look(page, "usage-table");
  });

  await test.step("a run is copied, and forked from its state", async () => {
    await page.getByRole("link", { name: "short" }).click();
    await expect(page.getByRole("heading", { name: "short", level: 1 })).toBeVisible();
    const [, team = "", , id = ""] = new URL(page.url()).pathname.split("/");
    await page.goto(`/${team}/runs/new?like=${id}`);
    await expect(page.getByLabel("Width", { exact: true })).toHaveValue("64");
    await expect(page.getByText("It begins at step 0")).toBeVisible();
    await look(page, "new-run-like");
    await page.getByLabel("Name", { exact: true }).fill("short again");
    await page.getByLabel("Steps", { exact: true }).fill("20");
    await page.getByRole("button", { name: "Start run" }).click();
    await expect(page.getByRole("heading", { name: "short again", level: 1 })).toBeVisible();
    await page.getByRole("link", { name: "Events", exact: true }).click();
    await expect(page.getByText("copied from short, with other schedule.steps")).toBeVisible();
    await page.goto(`/${team}/runs/new?fork=${id}`);
    await expect(page.getByText(/at step 30, saved/)).toBeVisible();
    await page.getByLabel("Name", { exact: true }).fill("short on");
    await page.getByLabel("Width", { exact: true }).fill("128");
    await page.getByLabel("Steps", { exact: true }).fill("60");
    await page.getByRole("button", { name: "Start fork" }).click();
    await expect(page.getByRole("link", { name: "model.width" })).toBeVisible();
    await everywhere(page, "fork-refused");
    await page.getByLabel("Width", { exact: true }).fill("64");
    await page.getByRole("button", { name: "Start fork" }).click();
    await expect(page.getByRole("heading", { name: "short on", level: 1 })).toBeVisible();
  });

  expect(heard.filter((words) => !/status of (4\d\d)/.test(words))).toEqual([]);
});

/** What the person writes; the same as the run that was measured, and longer. */
function written(dataset: string): string {
  return [
    "# for the night",
    "name: night 1 # the second",
    "data:",
    `  dataset: ${dataset}`,
    "  tokenizer: {kind: bytes}",
    "model:",
    "  layers: 2",
    "  width: 64",
    "  heads: 4",
    "  kv_heads: 2",
    "batch: {sequence_tokens: 64, micro_sequences: 4, global_sequences: 8}",
    "schedule: {steps: 50000, warmup_steps: 5}",
    "precision: {kind: fp32}",
    "checkpoint: {every_steps: 50}",
    "resources: {device: cpu}",
    "",
  ].join("\n");
}

function table(page: Page, label: string): Locator {
  return page.getByRole("region", { name: label, exact: true });
}

function row(page: Page, name: string): Locator {
  return page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
}

/** The page at every size, light and dark; nothing is wider than the screen. */
async function everywhere(page: Page, name: string): Promise<void> {
  for (const width of SIZES) {
    await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      const picture = `pages-${name}-${width}-${colorScheme}`;
      if (JUDGED.has(`${width} ${colorScheme}`)) await look(page, picture);
      else await page.screenshot({ path: join(test.info().project.testDir, "screenshots", `${picture}.png`) });
    }
    expect(await page.evaluate(() => document.documentElement.scrollWidth), `${name} does not scroll sideways`).toBe(width);
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1_440, height: 900 });
}

/** axe is slow: a small light page and a large dark one show it all. */
const JUDGED: ReadonlySet<string> = new Set(["390 light", "1440 dark"]);
