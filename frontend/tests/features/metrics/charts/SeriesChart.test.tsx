import { render, screen } from "@testing-library/react";
import uPlot from "uplot";
import { expect, it } from "vitest";
import { parseView, searchOf, viewOf } from "@/features/metrics/charts/chartView";
import { SeriesChart } from "@/features/metrics/charts/SeriesChart";
import { decimal } from "@/lib/format";

const LEARNING_RATE = [{ label: "learning rate", name: "learning_rate" }] as const;
const NORM = [{ label: "grad norm", name: "grad_norm" }] as const;
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

it("smooths what is noisy, and not the learning rate, which follows its schedule", () => {
  const column = { steps: [1, 2, 3], values: [1, 0, 0] };
  const zoom = { range: null, label: "all steps", onSelect: () => undefined, onMove: () => undefined };
  const shared = { columns: { grad_norm: column, learning_rate: column }, markers: [], zoom, isPlaceholder: false, view: viewOf({}), scale: "zero", text: String, axisText: String } as const;
  render(
    <>
      <SeriesChart {...shared} title="grad norm" series={NORM} position={(step) => step} />
      <SeriesChart {...shared} title="learning rate" series={LEARNING_RATE} position={(step) => step} />
    </>,
  );
  const drawn = uPlot.sync("run").plots.map(({ data }) => data.at(-1));
  expect(drawn).toHaveLength(2);
  expect(drawn[0]?.[2]).toBeGreaterThan(0);
  expect(drawn[1]).toEqual([1, 0, 0]);
});

it("stores disabled smoothing in the address, and omits the default", () => {
  expect(viewOf(parseView({ smooth: "0" })).smooth).toBe(0);
  expect(searchOf(viewOf({}))).toEqual({});
  expect(searchOf({ ...viewOf({}), smooth: 0 })).toEqual({ smooth: 0 });
});
