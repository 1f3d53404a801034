import { expect, it } from "vitest";
import { chartOptions, labelPlace } from "@/components/charts/chartOptions";

it("puts a label right of its line, left of it at the end, and nowhere if it would overprint its neighbour", () => {
  expect(labelPlace(100, 40, 4, 300, -Infinity)).toBe(104);
  expect(labelPlace(280, 40, 4, 300, 144)).toBe(236);
  expect(labelPlace(120, 40, 4, 300, 144)).toBeNull();
  expect(labelPlace(280, 40, 4, 300, 240)).toBeNull();
});

it("puts the ticks of bytes at powers of two", () => {
  const given = { group: "run", lines: [], scheme: "light", height: 100, xText: String, axisText: String, markers: () => [], zoom: () => undefined, onCursor: () => undefined } as const;
  const steps = (scale: "bytes" | "zero") => chartOptions({ ...given, element: document.createElement("div"), scale }).axes?.[1]?.incrs;
  expect(steps("bytes")).toContain(4 * 2 ** 30);
  expect(steps("zero")).toBeUndefined();
});
