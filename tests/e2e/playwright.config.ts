import { defineConfig } from "@playwright/test";

/** The server is started by whoever runs this; its address and a one-time link come by environment variables. */
export default defineConfig({
  testDir: ".",
  outputDir: "test-results",
  timeout: 330_000,
  workers: 1,
  reporter: "list",
  expect: { timeout: 15_000 },
  use: {
    baseURL: process.env["TRAINWRIGHT_E2E_URL"],
    viewport: { width: 1440, height: 900 },
    colorScheme: "light",
    locale: "en-GB",
    // What is not there fails soon, and not when the whole test has run out of time.
    actionTimeout: 30_000,
    navigationTimeout: 60_000,
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
