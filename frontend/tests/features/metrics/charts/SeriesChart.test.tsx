import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { parseView, searchOf, viewOf } from "@/features/metrics/charts/chartView";
import { SeriesChart } from "@/features/metrics/charts/SeriesChart";
import { decimal } from "@/lib/format";

const LOSSES = [
  { label: "train", name: "loss" },
  { label: "validation", name: "validation_loss" },
] as const;

it("draws smoothed curves and shows the measured last and best values", () => {
  const columns = { loss: { steps: [1, 2, 3, 4], values: [4, 2, 3, 5] }, validation_loss: { steps: [2, 4], values: [3.5, 3.25] } };
  const zoom = { range: null, label: "all steps", onSelect: () => undefined, onMove: () => undefined };
  render(
    <SeriesChart title="loss" best="low" series={LOSSES} columns={columns} position={(step) => step} markers={[]} zoom={zoom} isPlaceholder={false} view={viewOf({})} scale="fit" text={decimal} axisText={decimal} />,
  );
  expect(screen.getByText("last: train 5.000, validation 3.250")).toBeDefined();
  expect(screen.getByText("best: train 2.000 at step 2, validation 3.250 at step 4")).toBeDefined();
});

it("stores disabled smoothing in the address, and omits the default", () => {
  expect(viewOf(parseView({ smooth: "0" })).smooth).toBe(0);
  expect(searchOf(viewOf({}))).toEqual({});
  expect(searchOf({ ...viewOf({}), smooth: 0 })).toEqual({ smooth: 0 });
});
