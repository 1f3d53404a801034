import { readFileSync } from "node:fs";
import { expect, test, type Locator, type Page } from "@playwright/test";
import { audit, auditSizes, browserErrors } from "./audit";
import { signIn } from "./session";

/** The pages around a run: home, the form and its YAML, the table, usage. */
test("from the home page through a run written as YAML to many runs at once", async ({ page }) => {
  const errors = browserErrors(page);
  await signIn(page);
  await expect(page).toHaveTitle(/^Home · .+ · Trainwright$/);
  await expect(page.getByText("No runs failed since your last visit.")).toBeVisible();
  await auditSizes(page, "pages-home");

  await test.step("a run is written as YAML, rejected at a line, fixed, and shown in the form", async () => {
    await page.keyboard.press("n");
    await page.getByRole("radiogroup", { name: "Editor" }).getByText("YAML").click();
    await expect(page).toHaveURL(/view=YAML/);
    const text = page.getByLabel("Configuration as YAML");
    const dataset = /dataset: (\S+)/.exec(await text.inputValue())?.[1] ?? "";
    await text.fill(written(dataset).replace("width: 64", "width: 63"));
    await page.getByRole("button", { name: "line 8, model.width" }).click();
    await expect(text).toBeFocused();
    expect(await text.evaluate((area: HTMLTextAreaElement) => area.value.slice(area.selectionStart, area.selectionEnd))).toBe("  width: 63");
    await auditSizes(page, "pages-new-run-yaml-refused");
    await text.fill(written(dataset));
    const estimate = page.getByRole("region", { name: "Estimate" });
    await expect(estimate).toContainText(/measured: [\d,.]+ tokens\/s in short on/, { timeout: 30_000 });
    await expect(estimate).toContainText(/compute[\d.]+ TFLOP/);
    await page.getByRole("radiogroup", { name: "Editor" }).getByText("form").click();
    await page.getByRole("button", { name: /^Model settings/ }).click();
    await expect(page.getByLabel("Width", { exact: true })).toHaveValue("64");
    await page.getByLabel("Name", { exact: true }).fill("night 2");
    await auditSizes(page, "pages-new-run-form");
    await page.getByRole("radiogroup", { name: "Editor" }).getByText("YAML").click();
    await expect(text).toHaveValue(/name: night 2 # the second/);
  });

  await test.step("it is saved as a recipe and started, and the recipe fills in the next run", async () => {
    await page.getByRole("button", { name: "Save as recipe" }).click();
    await page.getByLabel("Recipe name").fill("nightly");
    await audit(page, "recipe-save");
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
    await expect(page.getByRole("list", { name: "Running now" }).or(page.getByRole("list", { name: "Queued runs" })).first()).toBeVisible();
    await auditSizes(page, "pages-home-busy");
  });

  await test.step("runs are selected by keyboard, tagged, and found by tag", async () => {
    await page.getByRole("link", { name: "Runs", exact: true }).click();
    await expect(row(page, "night 3")).toBeVisible();
    for (const key of ["j", "x", "j", "x"]) await page.keyboard.press(key);
    await expect(page.getByText("2 selected")).toBeVisible();
    await page.getByRole("button", { name: "Tag", exact: true }).click();
    await page.getByLabel("New tags").fill("week-47 nightly");
    await audit(page, "runs-tag");
    await page.getByRole("button", { name: "Save tags" }).click();
    await expect(row(page, "night 3").getByText("week-47")).toBeVisible();
    await auditSizes(page, "pages-runs-chosen");
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.keyboard.type("tag:week-47 ");
    await expect(page).toHaveURL(/tag=/);
    await expect(row(page, "short")).toBeHidden();
    await expect(row(page, "night 2")).toBeVisible();
    await page.getByRole("button", { name: "Clear filters" }).click();
    await expect(row(page, "short")).toBeVisible();
  });

  await test.step("on a phone runs are selected by touch, and the actions stay visible", async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    const box = page.getByLabel("Select night 3");
    await expect(box).toBeHidden();
    await page.getByRole("button", { name: "Select" }).click();
    // A click anywhere in the cell selects; outside it, the row opens.
    const cell = await row(page, "night 3").getByRole("cell").first().boundingBox();
    if (cell === null) throw new Error("no cell to press");
    await page.mouse.click(cell.x + 3, cell.y + 3);
    await expect(box).toBeChecked();
    await page.mouse.click(cell.x + cell.width - 3, cell.y + cell.height - 3);
    await expect(box).not.toBeChecked();
    await box.check();
    await page.getByLabel("Select night 2").check();
    await expect(page.getByText("2 selected")).toBeInViewport();
    await expect(page.getByRole("button", { name: "Compare" })).toBeInViewport();
    await audit(page, "runs-chosen-phone");
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
    await page.getByRole("button", { name: "Stop selecting" }).click();
    await expect(box).toBeHidden();
    await page.setViewportSize({ width: 1_440, height: 900 });
  });

  await test.step("columns are chosen, kept in the address and remembered", async () => {
    await page.getByRole("button", { name: "Columns" }).click();
    await page.getByRole("menuitemcheckbox", { name: "learning rate" }).click();
    await audit(page, "runs-columns");
    await page.keyboard.press("Escape");
    await expect(page).toHaveURL(/columns=.*learning_rate/);
    await page.getByRole("link", { name: "Home" }).click();
    await page.getByRole("link", { name: "Runs", exact: true }).click();
    await expect(page.getByRole("columnheader", { name: "learning rate", exact: true })).toBeVisible();
  });

  await test.step("many are paused, resumed, cancelled and deleted at once", async () => {
    for (const name of ["night 2", "night 3"]) await page.getByLabel(`Select ${name}`).check();
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await expect(page.getByText("Paused", { exact: true })).toHaveCount(2, { timeout: 90_000 });
    await page.getByRole("button", { name: "Resume", exact: true }).click();
    await expect(page.getByText("Paused", { exact: true })).toHaveCount(0, { timeout: 60_000 });
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await audit(page, "runs-cancel");
    await page.getByRole("button", { name: "Cancel runs" }).click();
    await expect(page.getByText("Cancelled", { exact: true })).toHaveCount(2, { timeout: 90_000 });
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await expect(page.getByRole("dialog")).toContainText(/This frees .+ \(\d+ checkpoints?\)/);
    await audit(page, "runs-delete");
    await page.getByRole("button", { name: "Delete 2 runs" }).click();
    await expect(row(page, "night 2")).toBeHidden();
    await expect(row(page, "short")).toBeVisible();
  });

  await test.step("usage is shown as a chart and as a table", async () => {
    await page.getByRole("link", { name: "Usage" }).click();
    await expect(page.getByText("CPU slot-hours by day")).toBeVisible();
    await auditSizes(page, "pages-usage");
    await page.getByRole("button", { name: "CPU slot-hours by day as a table" }).click();
    await expect(table(page, "CPU slot-hours by day").getByRole("row")).toHaveCount(31);
    await page.getByRole("radiogroup", { name: "Period in days" }).getByText("7", { exact: true }).click();
    await expect(page).toHaveURL(/days=7|days=%227%22/);
    await expect(table(page, "CPU slot-hours by day").getByRole("row")).toHaveCount(8);
    await expect(table(page, "Top runs by usage")).toContainText("short");
    await expect(table(page, "Usage by person")).toContainText("Ada");
    const coming = page.waitForEvent("download");
    await page.getByRole("button", { name: "CSV by person" }).click();
    expect(readFileSync(await (await coming).path(), "utf8")).toMatch(/^day,user,name,device,slot_hours\r\n.+,Ada,cpu,0\.\d+\r\n/);
    await audit(page, "usage-table");
  });

  await test.step("a run is cloned, and forked from a checkpoint", async () => {
    await page.getByRole("link", { name: "short" }).click();
    await expect(page.getByRole("heading", { name: "short", level: 1 })).toBeVisible();
    const [, team = "", , id = ""] = new URL(page.url()).pathname.split("/");
    await page.goto(`/${team}/runs/new?like=${id}`);
    await expect(page.getByLabel("Name", { exact: true })).toHaveValue("short-2");
    await page.getByRole("button", { name: /^Model settings/ }).click();
    await expect(page.getByLabel("Width", { exact: true })).toHaveValue("64");
    await expect(page.getByText("It starts at step 0")).toBeVisible();
    await audit(page, "new-run-like");
    await page.getByLabel("Name", { exact: true }).fill("short again");
    await page.getByLabel("Steps", { exact: true }).fill("20");
    await page.getByRole("button", { name: "Start run" }).click();
    await expect(page.getByRole("heading", { name: "short again", level: 1 })).toBeVisible();
    await page.getByRole("link", { name: "Events", exact: true }).click();
    await expect(page.getByText("copied from short, with other schedule.steps")).toBeVisible();
    await page.goto(`/${team}/runs/new?fork=${id}`);
    await expect(page.getByText(/at step 30, saved/)).toBeVisible();
    await page.getByLabel("Name", { exact: true }).fill("short on");
    await page.getByRole("button", { name: /^Model settings/ }).click();
    await expect(page.getByLabel("Width", { exact: true })).toBeDisabled();
    await page.getByLabel("Steps", { exact: true }).fill("20");
    await page.getByRole("button", { name: "Start fork" }).click();
    await expect(page.getByRole("link", { name: "Steps", exact: true })).toBeVisible();
    await auditSizes(page, "pages-fork-refused");
    await page.getByLabel("Steps", { exact: true }).fill("60");
    await page.getByRole("button", { name: "Start fork" }).click();
    await expect(page.getByRole("heading", { name: "short on", level: 1 })).toBeVisible();
  });

  expect(errors.filter((words) => !/status of (4\d\d)/.test(words))).toEqual([]);
});

/** The text the user writes: the measured run, with more steps. */
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
