import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { viewOf } from "@/features/metrics/charts/chartView";
import { HardwareCharts } from "@/features/metrics/hardware/HardwareCharts";
import { hardwareText, hasHardware } from "@/features/metrics/hardware/hardwareText";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const COLUMNS = {
  loss: { steps: [1, 2], values: [3, 2] },
  cpu_utilization: { steps: [2], values: [0.931] },
  run_cpu_cores: { steps: [2], values: [1.731] },
  node_memory_bytes: { steps: [2], values: [12 * 2 ** 30] },
  run_memory_bytes: { steps: [2], values: [3 * 2 ** 30] },
};
const ZOOM = { range: null, label: "all steps", onSelect: () => undefined, onMove: () => undefined };

it("draws what the agent measured, and each rank on demand", async () => {
  const asked: string[] = [];
  server.use(
    http.get("*/api/v1/teams/lab/runs/run_1/metrics", ({ request }) => {
      asked.push(...new URL(request.url).searchParams.getAll("names"));
      const series = [0, 1].map((rank) => ({ name: `rank_cpu_cores/${rank}`, unit: "cores", steps: [2], values: [0.5 + rank] }));
      return HttpResponse.json({ series, attempts: [], cursor: "0:0" });
    }),
  );
  const frame = { columns: COLUMNS, position: (step: number) => step, markers: [], zoom: ZOOM, isPlaceholder: false, view: viewOf({ smooth: 0 }) };
  renderRoute(<HardwareCharts frame={frame} team="lab" run="run_1" live={false} ranks={2} />);
  expect(await screen.findByText("last 93.1 %")).toBeDefined();
  expect(screen.getByText("last 1.73 cores")).toBeDefined();
  expect(screen.getByText("last: node 12 GiB, run 3 GiB")).toBeDefined();
  expect(screen.queryByText(/GPU utilization/)).toBeNull();
  await userEvent.click(screen.getByRole("checkbox", { name: "each rank" }));
  expect(await screen.findByText("last: rank 0 0.5 cores, rank 1 1.5 cores")).toBeDefined();
  expect(asked).toContain("gpu_power_watts/*");
});

it("offers no breakdown of a single rank", async () => {
  const frame = { columns: COLUMNS, position: (step: number) => step, markers: [], zoom: ZOOM, isPlaceholder: false, view: viewOf({ smooth: 0 }) };
  renderRoute(<HardwareCharts frame={frame} team="lab" run="run_1" live={false} ranks={1} />);
  expect(await screen.findByText("last 93.1 %")).toBeDefined();
  expect(screen.queryByRole("checkbox")).toBeNull();
});

it("summarizes hardware use in one line, and handles runs of older agents", () => {
  expect(hardwareText(COLUMNS)).toBe("node CPU 93.1 %, run 1.73 cores, node memory 12 GiB");
  expect(hardwareText({ ...COLUMNS, mean_gpu_utilization: { steps: [2], values: [1] } })).toContain("GPU 100 %");
  expect([hasHardware(COLUMNS), hasHardware({ loss: COLUMNS.loss })]).toEqual([true, false]);
});
