import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { ConnectionError } from "@/api/errors";
import { loadPage } from "@/app/lazyPage";
import { server } from "@tests/support/server";

const missing = () => Promise.reject(new TypeError("Failed to fetch dynamically imported module: /assets/UsagePage-1.js"));

it("reports that the server does not respond instead of showing the browser's error page", async () => {
  server.use(http.get("*/api/v1/health", () => HttpResponse.error()));
  await expect(loadPage(missing)).rejects.toBeInstanceOf(ConnectionError);
});

it("lets the router reload where a new version was installed", async () => {
  server.use(http.get("*/api/v1/health", () => HttpResponse.json({ status: "ok" })));
  await expect(loadPage(missing)).rejects.toThrow("Failed to fetch dynamically imported module");
  expect(await loadPage(() => Promise.resolve({ page: 1 }))).toEqual({ page: 1 });
});
