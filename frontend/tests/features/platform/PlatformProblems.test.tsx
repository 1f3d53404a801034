import { screen, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { PlatformProblems } from "@/features/platform/PlatformProblems";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

function answer(problems: { part: string; message: string }[]): { asked: () => number } {
  let asked = 0;
  server.use(
    http.get("*/api/v1/health", () => {
      asked += 1;
      return HttpResponse.json({ status: problems.length > 0 ? "degraded" : "ok", version: "1", problems });
    }),
  );
  return { asked: () => asked };
}

it("lists each part that does not work", async () => {
  answer([{ part: "worker", message: "exited with code 1. Datasets are not prepared." }]);
  renderRoute(<PlatformProblems />);
  expect((await screen.findByRole("status")).textContent).toContain(
    "The worker exited with code 1. Datasets are not prepared.",
  );
});

it("shows nothing while everything works", async () => {
  const health = answer([]);
  renderRoute(<PlatformProblems />);
  await waitFor(() => {
    expect(health.asked()).toBe(1);
  });
  expect(screen.queryByRole("status")).toBeNull();
});
