import { render } from "@testing-library/react";
import { expect, it } from "vitest";
import { WeightRules } from "@/features/runs/form/WeightRules";

it("shows the sentences of the plan that are not empty", () => {
  const decay = "Weight decay 0.1 is for 90 of 100 weights: matrices, and neither norms nor biases.";
  const { container, rerender } = render(<WeightRules plan={{ what_decays: decay, learning_rates: "" }} isUpdating={false} />);
  expect(container.textContent).toBe(decay);
  expect(container.querySelectorAll("p")).toHaveLength(1);
  rerender(<WeightRules plan={undefined} isUpdating />);
  expect(container.textContent).toBe("");
});
