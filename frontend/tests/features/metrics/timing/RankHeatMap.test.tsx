import { screen } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { RankHeatMap } from "@/features/metrics/timing/RankHeatMap";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("shows a single measurement of each rank as bars, not as a map of one column", async () => {
  const series = [0, 1].map((rank) => ({ name: `rank_seconds/${rank}:forward`, steps: [10], values: [0.2 * (rank + 1)] }));
  server.use(http.get("*/runs/run_1/metrics", () => HttpResponse.json({ series, attempts: [], cursor: "c" })));
  renderRoute(<RankHeatMap team="lab" run="run_1" live={false} window={null} newest={10} part="forward" onPart={() => undefined} nodeOf={() => undefined} logOf={() => null} />);
  expect(await screen.findByText("forward at step 10, the only one measured so far")).toBeDefined();
  expect(screen.getByRole("progressbar", { name: "Time of rank 0" }).getAttribute("aria-valuenow")).toBe("50");
  expect(screen.getByText("400 ms")).toBeDefined();
  expect(screen.getByRole("combobox", { name: "Part of the step" })).toBeDefined();
  expect(screen.queryByRole("region", { name: /table/ })).toBeNull();
});

it("names the node of the chosen rank if the run has several", async () => {
  const series = [0, 1].map((rank) => ({ name: `rank_seconds/${rank}:forward`, steps: [10, 20], values: [0.2, 0.2] }));
  server.use(http.get("*/runs/run_1/metrics", () => HttpResponse.json({ series, attempts: [], cursor: "c" })));
  renderRoute(
    <RankHeatMap
      team="lab"
      run="run_1"
      live={false}
      window={null}
      newest={20}
      part="forward"
      onPart={() => undefined}
      nodeOf={(rank) => ["gpu-07", "gpu-08"][rank]}
      logOf={() => null}
    />,
  );
  expect(await screen.findByText(/Rank 0 on gpu-07 takes 200 ms for forward/)).toBeDefined();
});

it("compares a rank with the others, as the event about a slow rank does", async () => {
  const series = [0, 1].map((rank) => ({ name: `rank_seconds/${rank}:forward`, steps: [10, 20], values: rank === 0 ? [0.13, 0.13] : [0.1, 0.1] }));
  server.use(http.get("*/runs/run_1/metrics", () => HttpResponse.json({ series, attempts: [], cursor: "c" })));
  renderRoute(<RankHeatMap team="lab" run="run_1" live={false} window={null} newest={20} part="forward" onPart={() => undefined} nodeOf={() => undefined} logOf={() => null} />);
  expect(await screen.findByText(/Rank 0 takes 130 ms for forward, 30 % more than the other rank\./)).toBeDefined();
});
