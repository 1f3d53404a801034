import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { FoldedSection } from "@/features/runs/form/FoldedSection";
import { sectionsOf, type JsonSchema, type SpecValues } from "@/features/runs/spec/specFields";

const FACTOR: JsonSchema = { type: "number", default: 1 };
const OPTIMIZER: JsonSchema = {
  properties: {
    kind: { enum: ["adamw", "muon"], type: "string", default: "adamw" },
    clip_norm: { type: "number", default: 1 },
    muon: { anyOf: [{ properties: { momentum: { type: "number", default: 0.95 } } }, { type: "null" }], default: null },
    learning_rate_factors: { anyOf: [{ properties: { embedding: FACTOR, head: FACTOR } }, { type: "null" }], default: null },
  },
};

function summary(values: SpecValues): string {
  const section = sectionsOf({ properties: { optimizer: OPTIMIZER } }).find(({ key }) => key === "optimizer");
  if (section === undefined) throw new Error("The schema has no such section.");
  render(<FoldedSection section={section} context={{ values, problems: [], datasets: [], tokenizers: [], help: {}, onChange: () => undefined }} />);
  return screen.getByRole("button", { name: /^Optimizer/ }).textContent;
}

it("names the group of fields that mean little without it", () => {
  const factors = { "optimizer.learning_rate_factors.embedding": "0.5", "optimizer.learning_rate_factors.head": "2" };
  expect(summary({ "optimizer.clip_norm": "2", ...factors })).toContain("clip norm 2, learning rate factors: embedding 0.5, head 2");
});

it("does not name the group that the kind shows", () => {
  expect(summary({ "optimizer.kind": "muon", "optimizer.muon.momentum": "0.9" })).toContain("kind muon, momentum 0.9");
});
