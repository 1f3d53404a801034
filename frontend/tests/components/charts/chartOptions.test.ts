import { expect, it } from "vitest";
import type uPlot from "uplot";
import { chartOptions, labelPlace } from "@/components/charts/chartOptions";
import { count } from "@/lib/format";

it("places a label right of its line, left of it at the end, and hides it if it would overlap its neighbor", () => {
  expect(labelPlace(100, 40, 4, 300, -Infinity)).toBe(104);
  expect(labelPlace(280, 40, 4, 300, 144)).toBe(236);
  expect(labelPlace(120, 40, 4, 300, 144)).toBeNull();
  expect(labelPlace(280, 40, 4, 300, 240)).toBeNull();
});

it("places ticks of bytes at powers of two", () => {
  const given = { xAxis: "number", group: "run", lines: [], scheme: "light", height: 100, xText: String, axisText: String, markers: () => [], zoom: () => undefined, onCursor: () => undefined } as const;
  const steps = (scale: "bytes" | "zero") => chartOptions({ ...given, element: document.createElement("div"), scale }).axes?.[1]?.incrs;
  expect(steps("bytes")).toContain(4 * 2 ** 30);
  expect(steps("zero")).toBeUndefined();
});

it("leaves room for the texts of the x axis", () => {
  const given = { xAxis: "number", group: "run", lines: [], scheme: "light", height: 100, axisText: String, markers: () => [], zoom: () => undefined, onCursor: () => undefined } as const;
  const options = chartOptions({ ...given, element: document.createElement("div"), scale: "fit", xText: count });
  const plot = (min: number, max: number) => ({ scales: { x: { min, max } } }) as unknown as uPlot;
  const space = options.axes?.[0]?.space as (plot: uPlot, axis: number, low: number, high: number, length: number) => number;
  const padding = options.padding?.[1] as uPlot.PaddingSide & ((plot: uPlot) => number);
  expect(space(plot(0, 9), 0, 0, 9, 500)).toBe(60);
  expect(space(plot(0, 0), 0, 337_443_000, 337_444_000, 500)).toBe(11 * 6 + 12);
  expect(padding(plot(0, 9))).toBe(20);
  expect(padding(plot(337_443_000, 337_444_000))).toBe(33);
});

it("ends the y axis at a ceiling, and where the values end if that is lower", () => {
  const given = { xAxis: "number", group: "run", lines: [], scheme: "light", height: 100, xText: String, axisText: String, markers: () => [], zoom: () => undefined, onCursor: () => undefined } as const;
  const top = (high: number | null) => {
    const { scales } = chartOptions({ ...given, element: document.createElement("div"), scale: "zero", ceiling: () => 20 });
    const range = scales?.["y"]?.range as unknown as (plot: null, low: number | null, high: number | null) => [number, number];
    return range(null, high === null ? null : 1, high)[1];
  };
  expect([1_500, 10, null].map(top)).toEqual([22, 11, 1]);
});

it("places ticks of a time axis at minutes and hours, and leaves gaps where values are missing", () => {
  const given = { group: "node", lines: [{ label: "CPU", color: 1, dash: false, faint: false }], scheme: "light", height: 100, xText: String, axisText: String, markers: () => [], zoom: () => undefined, onCursor: () => undefined } as const;
  const options = (xAxis: "time" | "number") => chartOptions({ ...given, xAxis, element: document.createElement("div"), scale: "zero" });
  expect(options("time").axes?.[0]?.incrs).toEqual(expect.arrayContaining([60, 900, 3_600, 21_600]));
  expect(options("time").axes?.[0]?.incrs).not.toContain(1_000);
  expect(options("time").series[1]?.spanGaps).toBe(false);
  expect(options("number").series[1]?.spanGaps).toBe(true);
});
