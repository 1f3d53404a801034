import { describe, expect, it } from "vitest";
import { heatMapOf, shadeOf, viridis } from "@/lib/charts/heatMap";

const row = (label: string, steps: number[], values: number[]) => ({ label, column: { steps, values } });

describe("heatMapOf", () => {
  it("gives each measured step a column while there are few, with empty gaps", () => {
    const map = heatMapOf([row("0", [1, 5, 10], [1, 2, 4]), row("1", [5, 10, 15], [0.25, 0, 8])], 96);
    expect(map.labels).toEqual(["0", "1"]);
    expect(map.columns.map(({ from, to }) => [from, to])).toEqual([[1, 1], [5, 5], [10, 10], [15, 15]]);
    expect(map.cells).toEqual([
      [1, 2, 4, null],
      [null, 0.25, 0, 8],
    ]);
  });

  it("rounds the ends of the legend outwards to whole exponents, ignoring zeros", () => {
    expect(heatMapOf([row("0", [1, 2, 3], [0, 0.3, 5])], 9)).toMatchObject({ low: -2, high: 3 });
    expect(heatMapOf([row("0", [1], [4])], 9)).toMatchObject({ low: 2, high: 3 });
    expect(heatMapOf([row("0", [1], [0])], 9)).toMatchObject({ low: 0, high: 1 });
    expect(heatMapOf([], 9)).toMatchObject({ labels: [], columns: [], low: 0, high: 1 });
  });

  it("groups many steps evenly, and keeps the largest value of each group", () => {
    const steps = Array.from({ length: 1_000 }, (_, index) => 10 * (index + 1));
    const values = steps.map((step) => (step === 7_770 ? 100 : 1 / step));
    const { columns, cells } = heatMapOf([row("0", steps, values)], 96);
    expect(columns).toHaveLength(96);
    expect([columns[0]?.from, columns[95]?.to]).toEqual([10, 10_000]);
    columns.slice(1).forEach(({ from }, index) => {
      expect(from).toBe((columns[index]?.to ?? 0) + 1);
    });
    expect(cells[0]?.every((value) => value !== null)).toBe(true);
    const spike = columns.findIndex(({ from, to }) => from <= 7_770 && 7_770 <= to);
    expect(cells[0]?.filter((value) => value === 100)).toHaveLength(1);
    expect(cells[0]?.[spike]).toBe(100);
  });
});

it("shade follows the exponent, with zero at the low end", () => {
  const legend = { low: -4, high: 4, scale: "log2" as const };
  expect([1 / 16, 1, 16, 0, 1e9].map((value) => shadeOf(value, legend))).toEqual([0, 0.5, 1, 0, 1]);
});

it("viridis runs from violet to yellow and only becomes lighter", () => {
  expect(viridis(0)).toEqual([68, 1, 84]);
  expect(viridis(1)).toEqual([253, 231, 37]);
  // Relative luminance of Rec. 709, without the sRGB gamma, which does not change the order.
  const light = Array.from({ length: 21 }, (_, index) => viridis(index / 20)).map(([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b);
  light.slice(1).forEach((value, index) => {
    expect(value).toBeGreaterThan(light[index] ?? 0);
  });
});

it("distinguishes close values on a linear scale", () => {
  const map = heatMapOf([row("0", [10], [0.1]), row("1", [10], [0.11]), row("2", [10], [0.12])], 9, "even");
  expect([map.low, map.high]).toEqual([0.1, 0.12]);
  expect([0.1, 0.11, 0.12].map((value) => Number(shadeOf(value, map).toFixed(6)))).toEqual([0, 0.5, 1]);
  expect(heatMapOf([row("0", [1], [0])], 9, "even")).toMatchObject({ low: 0, high: 1 });
});
