import { expect, test, type Locator, type Page } from "@playwright/test";
import { audit, browserErrors } from "./audit";
import { signIn, TEAM } from "./session";

const STEPS = 60;

interface Answer {
  series: { name: string; steps: number[] }[];
}

/** Changes the layout of a run of 2 × 2 ranks while it trains; the runner of this test then kills one of the ranks. */
test("a run continues in another layout after a rank was killed", async ({ page }) => {
  const errors = browserErrors(page);
  await signIn(page);

  await test.step("four ranks are configured, two by two, and started", async () => {
    await page.goto(new URL(`/${TEAM}/runs/new`, page.url()).href);
    await page.getByRole("radiogroup", { name: "Preset" }).getByText("nano", { exact: true }).click();
    await field(page, "name").fill("two by two");
    await field(page, "schedule.steps").fill(String(STEPS));
    await fold(page, "Schedule");
    await field(page, "schedule.warmup_steps").fill("5");
    await fold(page, "Batch");
    await field(page, "batch.sequence_tokens").fill("64");
    await field(page, "batch.micro_sequences").fill("2");
    await field(page, "batch.global_sequences").fill("16");
    await fold(page, "Checkpoint");
    await field(page, "checkpoint.every_steps").fill("10");
    await field(page, "resources.device").selectOption("cpu");
    await field(page, "resources.slots_per_node").fill("4");
    await fold(page, "Parallelism");
    await field(page, "parallelism.data").fill("2");
    await field(page, "parallelism.tensor").fill("2");
    await expect(page.getByText("= pipeline 1 × data 2 × tensor 2")).toBeVisible();
    await page.getByRole("button", { name: "Start run" }).click();
    await expect(page.getByRole("heading", { name: "two by two", level: 1 })).toBeVisible();
  });

  await test.step("its layout is changed while it trains: rejected if it does not fit, shown if it does", async () => {
    await expect(page.getByText("Running").first()).toBeVisible({ timeout: 200_000 });
    await page.getByRole("link", { name: "Configuration" }).click();
    await page.getByRole("button", { name: "Change layout" }).click();
    const dialog = page.getByRole("dialog", { name: "Layout of two by two" });
    await expect(dialog).toContainText("The current attempt keeps its layout.");
    await expect(field(dialog, "parallelism.tensor")).toHaveValue("2");
    await field(dialog, "parallelism.pipeline").fill("3");
    await expect(dialog.getByText(/does not divide the 4 ranks/).first()).toBeVisible();
    await audit(page, "layout-refused");
    await field(dialog, "parallelism.tensor").fill("1");
    await field(dialog, "parallelism.pipeline").fill("2");
    await expect(dialog.getByText("= pipeline 2 × data 2 × tensor 1")).toBeVisible();
    await audit(page, "layout");
    await dialog.getByRole("button", { name: "Change layout" }).click();
    await expect(dialog).toBeHidden();
    await page.getByRole("link", { name: "Events" }).click();
    await expect(page.getByText(/layout changed by Ada: data 2 × tensor 2 → pipeline 2 × data 2; from the next attempt on/i)).toBeVisible();
    await audit(page, "layout-changed");
  });

  await test.step("the killed run recovers in the new layout and succeeds", async () => {
    await expect(page.getByText(/attempt 2 on/i)).toBeVisible({ timeout: 120_000 });
    await expect(page.getByText("Done").first()).toBeVisible({ timeout: 240_000 });
  });

  await test.step("every step is in the response and in the chart's table exactly once", async () => {
    await page.getByRole("link", { name: "Overview" }).click();
    await expect(page).toHaveURL(/\/overview/);
    await page.reload();
    const run = new URL(page.url()).pathname.split("/")[3] ?? "";
    const answer = await page.request.get(`/api/v1/teams/${TEAM}/runs/${run}/metrics?names=loss`);
    const { series } = (await answer.json()) as Answer;
    const all = Array.from({ length: STEPS }, (_, n) => n + 1);
    expect(series.find(({ name }) => name === "loss")?.steps).toEqual(all);
    const figure = page.locator("figure").filter({ has: page.getByRole("heading", { name: "loss", exact: true }) });
    await expect(figure.locator("figcaption")).toContainText(/last: train [\d.]+/);
    await audit(page, "layout-recovered");
    await figure.getByRole("button", { name: "loss as a table" }).click();
    const rows = figure.getByRole("row");
    await expect(rows).toHaveCount(STEPS + 1);
    const steps = await figure.locator("tbody tr td:first-child").allTextContents();
    const losses = await figure.locator("tbody tr td:nth-child(2)").allTextContents();
    expect(steps.map(Number).reverse()).toEqual(all);
    expect(losses.filter((text) => !/^[\d.]+$/.test(text))).toEqual([]);
    await audit(page, "layout-recovered-table");
  });

  // The browser reports error responses in its console, and a layout that does not fit is rejected with one.
  expect(errors.filter((words) => !words.includes("status of 422"))).toEqual([]);
});

function field(place: Page | Locator, path: string): Locator {
  return place.locator(`#field-${path.replaceAll(".", "-")}`);
}

async function fold(page: Page, section: string): Promise<void> {
  await page.getByRole("button", { name: new RegExp(`^${section}`) }).click();
}
