import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { RankTimes } from "@/app/routes/run/RankTimes";
import type { LiveMetrics } from "@/features/metrics/live/metricsQuery";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

it.each([
  ["waits", {}, 0],
  ["has trained", { loss: { steps: [1], values: [9] } }, 1],
] as const)("compares ranks of a run that %s", async (_, columns, panels) => {
  server.use(http.get("*/api/v1/teams/lab/runs/:run/*", () => HttpResponse.json({ series: [], families: [] })));
  const run = aRun({});
  run.spec.resources = { ...run.spec.resources, nodes: 1, slots_per_node: 2 };
  const metrics = { columns } as unknown as LiveMetrics;
  renderRoute(
    <section aria-label="ranks">
      <RankTimes team="lab" run={run} live window={null} metrics={metrics} part="forward" onPart={() => undefined} />
    </section>,
  );
  const ranks = await screen.findByRole("region", { name: "ranks" });
  expect(ranks.childElementCount).toBe(panels);
});
