import { expect, test, type Locator, type Page } from "@playwright/test";
import { audit, browserErrors } from "./audit";
import { signIn, TEAM } from "./session";

/** Starts a run in FP8 and reads its FP8 measurements, during training and after. */
test("a run in FP8, from its settings to its tensors", async ({ page }) => {
  const errors = browserErrors(page);
  await signIn(page);
  await expect(page.getByText("No runs yet.")).toBeVisible();

  await test.step("the settings are shown for FP8 only, with errors at their fields", async () => {
    await page.goto(`/${TEAM}/runs/new`);
    await page.getByRole("radiogroup", { name: "Preset" }).getByText("nano", { exact: true }).click();
    await page.getByLabel("Name", { exact: true }).fill("eight bits");
    await fold(page, "Precision");
    await expect(page.getByLabel("Measure every (steps)")).toBeHidden();
    await field(page, "precision.kind").selectOption("fp8");
    await page.getByLabel("Measure every (steps)").fill("5");
    await field(page, "precision.fp8.level").selectOption("O1");
    await field(page, "precision.fp8.moments").selectOption("block");
    await expect(page.getByRole("link", { name: "Precision: moments" })).toBeVisible();
    await expect(page.getByText(/does not work with O1/).first()).toBeVisible();
    await audit(page, "new-run-fp8-refused");
    await field(page, "precision.fp8.level").selectOption("O2");
    await expect(page.getByRole("link", { name: "Precision: moments" })).toBeHidden();
    await field(page, "precision.fp8.moments").selectOption("");
  });

  await test.step("it is started and trains", async () => {
    await page.getByLabel("Steps", { exact: true }).fill("60");
    await fold(page, "Schedule");
    await page.getByLabel("Warmup steps").fill("5");
    await fold(page, "Batch");
    await page.getByLabel("Sequence tokens").fill("64");
    await page.getByLabel("Micro batch (sequences)").fill("4");
    await page.getByLabel("Global batch (sequences)").fill("8");
    await page.getByLabel("Device").selectOption("cpu");
    await page.getByRole("button", { name: "Start run" }).click();
    await expect(page.getByRole("heading", { name: "eight bits", level: 1 })).toBeVisible();
  });

  await test.step("the FP8 tab says when measurements arrive, then shows them", async () => {
    const asked: string[] = [];
    page.on("request", (request) => asked.push(decodeURIComponent(request.url())));
    await page.getByRole("link", { name: "FP8", exact: true }).press("Enter");
    await expect(page).toHaveURL(/\/fp8$/);
    await expect(page.getByText(/Level O2, tensor scaling, current amax. Measured every 5 steps/)).toBeVisible({ timeout: 120_000 });
    await expect(figure(page, "tensors clamped, values underflowed").locator("figcaption")).toHaveText(/last: clamped [\d.e-]+( %)?, underflow [\d.e-]+( %)?/);
    await expect(page.getByText("Done").first()).toBeVisible({ timeout: 300_000 });
    await expect(page.getByText("last at step 60")).toBeVisible();
    expect(asked.filter((url) => /names=fp8_(amax|scale)\/\*/.test(url) && !url.includes("/names?"))).toEqual([]);
    expect(asked.some((url) => url.includes("names=fp8_amax/layers.*.attention.query.weight:input"))).toBe(true);
  });

  await test.step("every panel shows plausible values", async () => {
    const lost = await numberIn(figure(page, "weight updates lost"), /last ([\d.]+) %/);
    expect(lost).toBeGreaterThan(0);
    expect(lost).toBeLessThan(100);
    await expect(figure(page, "smallest headroom").locator("figcaption")).toHaveText(/last (1|0\.\d+)/);
    await expect(figure(page, "skipped steps").locator("figcaption")).toHaveText(/last \d+/);
    const largest = await numberIn(figure(page, "amax by layer"), /step 60: largest ([\d.]+) in layer [01]/);
    expect(largest).toBeGreaterThan(0);
    await expect(figure(page, "scale of query input").locator("figcaption")).toHaveText(/last 2[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+/);
    await audit(page, "run-fp8");
    await figure(page, "amax by layer").scrollIntoViewIfNeeded();
    await audit(page, "run-fp8-tensors");
  });

  await test.step("a layer is read and selected by keyboard, and kept in the address", async () => {
    await page.getByLabel("Kind of tensor").selectOption("gradient");
    await page.getByLabel("Part of the model").selectOption("feed_forward.down");
    const map = page.getByRole("slider", { name: /amax by layer/ });
    await map.focus();
    await map.press("ArrowDown");
    await map.press("ArrowLeft");
    await expect(map).toHaveAttribute("aria-valuetext", /^layer 1, step 55: [\d.e-]+$/);
    await audit(page, "run-fp8-keyboard");
    await map.press("Enter");
    await expect(page).toHaveURL(/kind=gradient&part=feed_forward.down&layer=1/);
    await page.reload();
    await expect(page.getByLabel("Layer", { exact: true })).toHaveValue("1");
    await expect(figure(page, "scale of feed forward down gradient").locator("figcaption")).toHaveText(/last [\d^−.e-]+/);
    await page.getByRole("button", { name: "amax by layer as a table" }).click();
    await expect(page.getByRole("columnheader", { name: "step 60" })).toBeVisible();
    await audit(page, "run-fp8-table");
  });

  await test.step("it is readable in the dark theme and on a phone", async () => {
    await page.emulateMedia({ colorScheme: "dark" });
    await page.reload();
    await expect(figure(page, "amax by layer").locator("figcaption")).toHaveText(/step 60/);
    await audit(page, "run-fp8-dark");
    await page.setViewportSize({ width: 390, height: 844 });
    await audit(page, "run-fp8-phone");
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(width).toBe(390);
  });

  expect(errors).toEqual([]);
});

function figure(page: Page, title: string): Locator {
  return page.locator("figure", { has: page.getByRole("heading", { name: new RegExp(`^${title}`) }) });
}

function field(page: Page, path: string): Locator {
  return page.locator(`#field-${path.replaceAll(".", "-")}`);
}

async function fold(page: Page, section: string): Promise<void> {
  await page.getByRole("button", { name: new RegExp(`^${section}`) }).click();
}

async function numberIn(place: Locator, pattern: RegExp): Promise<number> {
  const caption = place.locator("figcaption");
  await expect(caption).toHaveText(pattern);
  return Number(pattern.exec((await caption.textContent()) ?? "")?.[1]);
}
