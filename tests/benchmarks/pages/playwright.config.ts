import { defineConfig } from "@playwright/test";
import browserTests from "../../e2e/playwright.config";

/** The browser tests' configuration for measuring: nothing else is recorded. */
export default defineConfig({
  ...browserTests,
  testDir: ".",
  outputDir: "../../e2e/test-results/bench",
  timeout: 240_000,
  use: { ...browserTests.use, trace: "off" },
});
