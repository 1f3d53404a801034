import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { StepTimeBar } from "@/features/metrics/timing/StepTimeBar";
import type { Column } from "@/lib/charts/series";

function columnOf(values: number[]): Column {
  return { steps: values.map((_, index) => index + 1), values };
}

it("says which steps its durations are the mean of", () => {
  const seconds = [5, 0.1, 0.3, ...Array<number>(18).fill(0.2)];
  render(<StepTimeBar columns={{ forward_seconds: columnOf(seconds), backward_seconds: columnOf(seconds) }} />);
  expect(screen.getByRole("heading").textContent).toBe("step time breakdown, 400 ms");
  expect(screen.getByText("Mean of the last 20 steps.")).toBeDefined();
});

it("averages all parts over the same steps", () => {
  render(<StepTimeBar columns={{ forward_seconds: columnOf([5, 0.1]), backward_seconds: { steps: [1, 3], values: [9, 0.2] } }} />);
  expect(screen.getByRole("heading").textContent).toBe("step time breakdown, 300 ms");
  expect(screen.getByText("The last step.")).toBeDefined();
});

it("says that nothing was measured", () => {
  render(<StepTimeBar columns={{ loss: columnOf([3]) }} />);
  expect(screen.getByText("This run reported no timings.")).toBeDefined();
});
