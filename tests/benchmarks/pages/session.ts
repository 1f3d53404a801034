import { writeFileSync } from "node:fs";
import { expect, type Page } from "@playwright/test";

interface Told {
  email: string;
  password: string;
  team: string;
  /** Where the figures are written. */
  out: string;
  times?: number;
  seconds?: number;
  steps?: number;
  run?: string;
  runs?: string[];
  series?: string[];
}

/** Settings from the benchmark, which describe the platform under test. */
export const told = JSON.parse(process.env["TRAINWRIGHT_BENCH"] ?? "{}") as Told;

export async function signIn(page: Page): Promise<void> {
  await page.goto("/sign-in");
  await page.getByLabel("Email").fill(told.email);
  await page.getByLabel("Password").fill(told.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL(new RegExp(`/${told.team}$`));
}

export function report(figures: object): void {
  writeFileSync(told.out, JSON.stringify(figures));
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return ((sorted[Math.floor((sorted.length - 1) / 2)] ?? NaN) + (sorted[Math.ceil((sorted.length - 1) / 2)] ?? NaN)) / 2;
}
