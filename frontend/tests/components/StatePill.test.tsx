import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { StatePill } from "@/components/StatePill";

it("shows the state's label", () => {
  render(<StatePill state="retry_wait" />);
  expect(screen.getByText("Recovering")).toBeDefined();
});

it("shows that the node is silent", () => {
  render(<StatePill state="running" suspectSeconds={34.2} />);
  expect(screen.getByText(", no contact with its node for 34 s")).toBeDefined();
});
