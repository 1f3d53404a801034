import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { StatePill } from "@/components/StatePill";

it("says the state in a word", () => {
  render(<StatePill state="retry_wait" />);
  expect(screen.getByText("Recovering")).toBeDefined();
});

it("tells that the node is silent", () => {
  render(<StatePill state="running" suspectSeconds={34.2} />);
  expect(screen.getByText(", no word from its node for 34 s")).toBeDefined();
});
