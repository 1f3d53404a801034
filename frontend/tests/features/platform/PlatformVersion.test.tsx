import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { PlatformVersion } from "@/features/platform/PlatformVersion";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("shows the version that the server has", async () => {
  server.use(http.get("*/api/v1/health", () => HttpResponse.json({ status: "ok", version: "3.14.15", problems: [] })));
  renderRoute(<PlatformVersion />);
  expect(await screen.findByText("Trainwright 3.14.15")).toBeTruthy();
});
