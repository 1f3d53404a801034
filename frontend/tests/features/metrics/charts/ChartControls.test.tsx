import { render, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import { ChartControls } from "@/features/metrics/charts/ChartControls";
import { viewOf } from "@/features/metrics/charts/chartView";

const view = viewOf({});
const isFolded = () => screen.getByText("more").parentElement?.className.includes("max-tablet:hidden");

it("folds all controls but the x axis and the smoothing on phones", async () => {
  render(<ChartControls view={view} onChange={() => undefined}><span>more</span></ChartControls>);
  expect(isFolded()).toBe(true);
  const rest = screen.getByText("more").parentElement;
  expect(rest?.contains(screen.getByRole("radiogroup", { name: "y axis of the loss" }))).toBe(true);
  for (const kept of [screen.getByRole("radiogroup", { name: "x axis" }), screen.getByRole("slider")]) expect(rest?.contains(kept)).toBe(false);
  const options = screen.getByRole("button", { name: "Chart options", expanded: false });
  await userEvent.click(options);
  expect(options.getAttribute("aria-expanded")).toBe("true");
  expect(isFolded()).toBe(false);
});

it("shows them when the charts are zoomed, because they show all again", () => {
  const { rerender } = render(<ChartControls view={view} onChange={() => undefined}><span>more</span></ChartControls>);
  rerender(<ChartControls view={{ ...view, window: { last: 100 } }} onChange={() => undefined}><span>more</span></ChartControls>);
  expect(isFolded()).toBe(false);
});
