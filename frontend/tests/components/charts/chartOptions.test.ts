import { expect, it } from "vitest";
import { chartOptions, labelPlace } from "@/components/charts/chartOptions";

it("places a label right of its line, left of it at the end, and hides it if it would overlap its neighbor", () => {
  expect(labelPlace(100, 40, 4, 300, -Infinity)).toBe(104);
  expect(labelPlace(280, 40, 4, 300, 144)).toBe(236);
  expect(labelPlace(120, 40, 4, 300, 144)).toBeNull();
  expect(labelPlace(280, 40, 4, 300, 240)).toBeNull();
});

it("places ticks of bytes at powers of two", () => {
  const given = { group: "run", lines: [], scheme: "light", height: 100, xText: String, axisText: String, markers: () => [], zoom: () => undefined, onCursor: () => undefined } as const;
  const steps = (scale: "bytes" | "zero") => chartOptions({ ...given, element: document.createElement("div"), scale }).axes?.[1]?.incrs;
  expect(steps("bytes")).toContain(4 * 2 ** 30);
  expect(steps("zero")).toBeUndefined();
});
