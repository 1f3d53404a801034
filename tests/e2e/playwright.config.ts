import { defineConfig } from "@playwright/test";

/** Environment variables give the address of a running platform and a one-time link. The timeouts suit a busy machine. */
export default defineConfig({
  testDir: ".",
  outputDir: "test-results",
  timeout: 600_000,
  workers: 1,
  reporter: "list",
  expect: { timeout: 30_000 },
  use: {
    baseURL: process.env["TRAINWRIGHT_E2E_URL"],
    viewport: { width: 1440, height: 900 },
    colorScheme: "light",
    locale: "en-GB",
    // A missing element fails before the test times out.
    actionTimeout: 60_000,
    navigationTimeout: 120_000,
    trace: "retain-on-failure",
    launchOptions: {
      executablePath: process.env["CHROMIUM_PATH"] ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
});
