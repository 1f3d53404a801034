import { expect, test } from "@playwright/test";
import { auditSizes, browserErrors } from "./audit";

const CODE = process.env["TRAINWRIGHT_E2E_CODE"] ?? "";

/** A signed-out browser asks who is signed in, and the provider's own pages want a font and an icon. */
const EXPECTED_ERRORS = /status of 401|fonts\.googleapis\.com|favicon\.ico/;

test("a person signs in with the identity provider, and approves a program", async ({ page }) => {
  const errors = browserErrors(page);
  await page.goto("/sign-in/device");
  await expect(page).toHaveURL(/\/sign-in\?next=/);
  await expect(page.getByRole("button", { name: "Sign in with Lab login" })).toBeVisible();
  await auditSizes(page, "provider-sign-in");
  await page.getByRole("button", { name: "Sign in with Lab login" }).click();

  await page.locator("input[name=login]").fill("grace");
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await expect(page.locator("input[name=login]")).toHaveCount(0);
  await page.locator("button[type=submit]").click();

  await page.getByLabel("Code").fill(CODE.toLowerCase());
  await auditSizes(page, "device-code");
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(page.getByText("trainwright on gpu-07")).toBeVisible();
  await auditSizes(page, "device-request");
  await page.getByRole("button", { name: "Approve" }).click();
  await expect(page.getByText("Approved.")).toBeVisible();

  await page.goto("/");
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("link", { name: "Keys and browsers" }).click();
  await expect(page.getByRole("region", { name: "Browsers" })).toContainText("signed in with Lab login");
  await page.getByRole("link", { name: "Profile" }).click();
  await expect(page.getByText("Your account has no password.")).toBeVisible();
  await expect(page.getByText(/You sign in as grace@lab.example at/)).toBeVisible();
  await auditSizes(page, "provider-settings");
  expect(errors.filter((text) => !EXPECTED_ERRORS.test(text))).toEqual([]);
});
