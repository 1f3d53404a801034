import { writeFileSync } from "node:fs";
import { expect, type Page } from "@playwright/test";

interface Told {
  email: string;
  password: string;
  team: string;
  /** Where the figures go. */
  out: string;
  times?: number;
  seconds?: number;
  steps?: number;
  run?: string;
  runs?: string[];
  series?: string[];
}

/** What the benchmark says about the platform that is looked at. */
export const told = JSON.parse(process.env["TRAINWRIGHT_BENCH"] ?? "{}") as Told;

export async function signIn(page: Page): Promise<void> {
  await page.goto("/sign-in");
  await page.getByLabel("E-mail").fill(told.email);
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
