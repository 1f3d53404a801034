import { expect, test, type Page } from "@playwright/test";
import { audit, browserErrors } from "./audit";
import { signIn, TEAM } from "./session";

/** What a user does with a run: pause, rename and compare it, manage checkpoints and nodes, also by keyboard. */
test("a run is paused, edited, compared and found by keyboard", async ({ page }) => {
  const errors = browserErrors(page);
  const [first = "", second = "", long = ""] = (process.env["TRAINWRIGHT_E2E_RUNS"] ?? "").split(",");
  await signIn(page);

  await test.step("a run is paused and resumed", async () => {
    await page.goto(`/${TEAM}/runs/${long}/overview`);
    await expect(page.getByText("Running").first()).toBeVisible({ timeout: 120_000 });
    await expect(page.getByText("compute so far")).toBeVisible();
    await expect(page.getByRole("slider", { name: /time by rank/ })).toBeVisible({ timeout: 60_000 });
    await audit(page, "run-ranks");
    await page.getByRole("button", { name: "Pause" }).click();
    await expect(page.getByRole("region", { name: "What happened" })).toContainText(/Paused at step \d+/, { timeout: 90_000 });
    await audit(page, "run-paused");
    await page.getByRole("button", { name: "Resume" }).click();
    await expect(page.getByRole("button", { name: "Pause" })).toBeVisible();
  });

  await test.step("its name, tags and notes are edited", async () => {
    await page.keyboard.press("e");
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name", { exact: true }).fill("the long one");
    await dialog.getByLabel("Tags").fill("night Week-47");
    await dialog.getByLabel("Notes").fill("Whether it still falls after a day.");
    await audit(page, "run-edit");
    await dialog.getByRole("button", { name: "Save" }).click();
    await expect(page.getByRole("heading", { name: "the long one", level: 1 })).toBeVisible();
    await expect(page.getByRole("link", { name: "week-47" })).toBeVisible();
  });

  await test.step("a run is compared with one found by name", async () => {
    await page.goto(`/${TEAM}/runs/${first}/overview`);
    await page.getByRole("button", { name: "compare with" }).press("Enter");
    await page.keyboard.type("PILOT");
    const box = page.getByRole("checkbox", { name: /^pilot-2/ });
    await expect(page.getByRole("checkbox", { name: /^(the long one|endless)/ })).toHaveCount(0);
    await box.press("Space");
    await audit(page, "compare-with");
    await page.keyboard.press("Escape");
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByRole("button", { name: "Chart options" }).click();
    await page.getByRole("button", { name: "compare with" }).press("Enter");
    await page.keyboard.type("PILOT");
    await expect(page.getByRole("checkbox", { name: /^(the long one|endless)/ })).toHaveCount(0);
    await box.press("Space");
    await audit(page, "compare-with-phone");
    await page.setViewportSize({ width: 1_440, height: 900 });
    await page.getByRole("link", { name: "Compare 2 runs" }).press("Enter");
    await expect(page.getByRole("checkbox", { name: "Show pilot-1" })).toBeVisible();
    await expect(page).toHaveURL(new RegExp(`runs=${first}(,|%2C)${second}`));
  });

  await test.step("two runs are compared", async () => {
    await page.goto(`/${TEAM}/compare?runs=${first},${second}&series=loss,validation_loss,mfu`);
    const loss = page.locator("figure", { hasText: "loss" }).first();
    await expect(loss.locator("figcaption")).toContainText(/last: pilot-1 [\d.]+, pilot-2 [\d.]+/);
    await expect(page.getByRole("row", { name: /learning rate 0.001 0.003/ })).toBeVisible();
    await audit(page, "compare");
    await page.getByLabel("Show pilot-2").uncheck();
    await expect(loss.locator("figcaption")).toContainText(/^last: pilot-1 [\d.]+$/);
    await expect(page).toHaveURL(new RegExp(`hide=${second}`));
    await page.getByRole("radiogroup", { name: "x axis" }).getByText("time").click();
    // The address is updated once the input pauses.
    await expect(page).toHaveURL(/[?&]x=time/);
    await page.reload();
    await expect(page.getByLabel("Show pilot-2")).not.toBeChecked();
    await expect(page.getByRole("radio", { name: "time" })).toBeChecked();
    await phone(page, "compare-phone");
  });

  await test.step("checkpoints are pinned, described and cleaned up", async () => {
    await page.goto(`/${TEAM}/checkpoints`);
    const ofRun = page.getByRole("rowgroup").filter({ hasText: "pilot-1" }).first().getByRole("row");
    const state = ofRun.filter({ hasText: "Resumable state" }).first();
    await expect(state).toContainText(/parameters; .+ float32 values, saved by 1 rank/);
    await state.getByRole("button", { name: /^Pin/ }).click();
    await expect(page.getByRole("button", { name: /^Pinned/ })).toHaveCount(1);
    await audit(page, "checkpoints");
    await state.getByRole("button", { name: /^More/ }).click();
    await page.getByRole("menuitem", { name: "Download with curl or Python" }).click();
    await expect(page.getByRole("region", { name: /curl/ })).toContainText("$TRAINWRIGHT_KEY");
    await audit(page, "checkpoint-snippets");
    await page.getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Clean up…" }).click();
    await page.getByLabel("Newest checkpoints to keep per run").fill("0");
    await page.getByRole("button", { name: "Preview" }).click();
    await expect(page.getByRole("dialog")).toContainText(/would be deleted, freeing/);
    await expect(page.getByRole("dialog")).toContainText("1 pinned");
    await audit(page, "retention");
    await page.getByRole("button", { name: /^Delete \d+ checkpoints?/ }).click();
    await expect(page.getByRole("dialog")).toContainText(/checkpoints? deleted\./);
    await page.getByRole("button", { name: "Close" }).click();
    await expect(page.getByRole("button", { name: /^Pinned/ })).toHaveCount(1);
    await phone(page, "checkpoints-phone");
  });

  await test.step("a node is drained and put back into service", async () => {
    await page.goto(`/${TEAM}/nodes`);
    await expect(page.getByRole("list", { name: /^Slots of/ })).toContainText("the long one", { timeout: 60_000 });
    await audit(page, "nodes-slots");
    await page.getByRole("button", { name: /^Drain/ }).click();
    await expect(page.getByText("Draining", { exact: true })).toBeVisible();
    await audit(page, "nodes-draining");
    await page.getByRole("button", { name: /^Stop draining/ }).click();
    await expect(page.getByText("Online", { exact: true })).toBeVisible();
  });

  await test.step("everything is found by keyboard", async () => {
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox").fill("pilot-2");
    await expect(page.getByRole("option", { name: /pilot-2/ })).toHaveAttribute("aria-selected", "true");
    await audit(page, "palette");
    await page.keyboard.press("Enter");
    await expect(page.getByRole("heading", { name: "pilot-2", level: 1 })).toBeVisible();
    await page.keyboard.press("g");
    await page.keyboard.press("d");
    await expect(page.getByRole("heading", { name: "Datasets", level: 1 })).toBeVisible();
    await page.keyboard.press("?");
    await expect(page.getByRole("dialog", { name: "Keyboard shortcuts" })).toContainText("Checkpoints");
    await audit(page, "keys");
    await page.keyboard.press("Escape");
  });

  await test.step("a live run and its slots are readable in the dark theme", async () => {
    await page.emulateMedia({ colorScheme: "dark" });
    for (const [name, path] of [
      ["run", `/${TEAM}/runs/${long}/overview`],
      ["nodes", `/${TEAM}/nodes`],
    ] as const) {
      await page.goto(path);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await audit(page, `${name}-dark`);
    }
  });

  expect(errors).toEqual([]);
});

/** The same page on a phone. */
async function phone(page: Page, name: string): Promise<void> {
  await page.setViewportSize({ width: 390, height: 844 });
  await audit(page, name);
  await page.setViewportSize({ width: 1440, height: 900 });
}
