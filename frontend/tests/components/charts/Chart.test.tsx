import { cleanup, render, screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import type { ComponentProps } from "react";
import { expect, it } from "vitest";
import { Chart } from "@/components/charts/Chart";

const LINE = { label: "train", color: 1, values: [3, 2.5, 2.25], raw: [3, 2, 2.125] };

function renderChart(given: Partial<ComponentProps<typeof Chart>> = {}) {
  render(<Chart title="loss" group="run" x={[10, 20, 30]} xName="step" xText={String} lines={[LINE]} yText={String} scale="fit" markers={[]} {...given} />);
}

it("shows the measured values in its caption and table, not the smoothed ones", async () => {
  renderChart();
  expect(screen.getByRole("figure").textContent).toContain("last 2.125");
  expect(screen.getByText("last 2.125").className).toContain("tabular-nums");
  await userEvent.click(screen.getByRole("button", { name: "loss as a table" }));
  const rows = within(screen.getByRole("region", { name: "loss, table" })).getAllByRole("row");
  expect(rows.map(({ textContent }) => textContent)).toEqual(["steptrain", "302.125", "202", "103"]);
});

it("names its lines in the caption if there are several, or if it is told to", () => {
  renderChart({ title: "one" });
  renderChart({ title: "two", lines: [LINE, { ...LINE, label: "validation", raw: [null, 4, null] }] });
  renderChart({ title: "three", isLabelled: true });
  expect(screen.getAllByRole("figure").map((figure) => figure.querySelector("figcaption")?.textContent)).toEqual([
    "last 2.125",
    "last: train 2.125, validation 4",
    "last: train 2.125",
  ]);
});

it("says that no value is in its range, unless the line passes through", () => {
  const zoom = (from: number, to: number) => ({ zoom: { range: [from, to], label: "", onSelect: () => undefined, onMove: () => undefined } }) as const;
  renderChart(zoom(31, 40));
  expect(screen.getByText("No values in this range")).toBeDefined();
  expect(screen.queryByText(/^last/)).toBeNull();
  renderChart(zoom(11, 12));
  expect(screen.getAllByText("No values in this range")).toHaveLength(1);
});

it("names up to eight lines in its caption, in the order of their values, and of more the lowest and highest", () => {
  const lines = (count: number) => Array.from({ length: count }, (_, index) => ({ label: `run_${index + 1}`, color: index + 1, values: [0, 0, index + 1] }));
  renderChart({ title: "eight", lines: lines(8), legend: false });
  const caption = screen.getByRole("figure").querySelector("figcaption");
  expect([...(caption?.children ?? [])].map(({ textContent }) => textContent)).toEqual(["last:", ...[8, 7, 6, 5, 4, 3, 2, 1].map((run) => `run_${run} ${run}`)]);
  expect(caption?.querySelectorAll("[style*='--color-series']")).toHaveLength(8);
  cleanup();
  renderChart({ title: "three", lines: lines(3), legend: false });
  expect(screen.getByRole("figure").querySelector("figcaption")?.textContent).toBe("last:run_3 3run_2 2run_1 1");
  cleanup();
  renderChart({ title: "three", lines: lines(3) });
  expect(screen.getByText("last: run_1 1, run_2 2, run_3 3")).toBeDefined();
  renderChart({ title: "nine", lines: lines(9), legend: false });
  expect(screen.getByText("last: run_1 1 to run_9 9")).toBeDefined();
});

it("shows the colours of its lines in the caption if no legend does", () => {
  const lines = [LINE, { ...LINE, label: "validation", color: 2 }];
  renderChart({ lines });
  const swatches = () => screen.getByRole("figure").querySelectorAll("figcaption [style*='--color-series']");
  expect(swatches()).toHaveLength(0);
  cleanup();
  renderChart({ lines, legend: false });
  expect(swatches()).toHaveLength(2);
});

it("knows no value of an interval of time in which nothing was measured", () => {
  const offline = { label: "CPU", color: 1, values: [3, 2.5, null, null] };
  renderChart({ title: "steps", x: [10, 20, 30, 40], lines: [offline] });
  renderChart({ title: "time", x: [10, 20, 30, 40], lines: [offline], xAxis: "time" });
  renderChart({ title: "newest not yet measured", x: [10, 20, 30], lines: [{ ...offline, values: [3, 2.5, null] }], xAxis: "time" });
  expect(screen.getAllByRole("figure").map((figure) => figure.querySelector("figcaption")?.textContent)).toEqual(["last 2.5", "last –", "last 2.5"]);
});
