import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Problem } from "@/api/types";
import { goToField } from "@/features/runs/form/fieldId";
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

function show(properties: Record<string, JsonSchema>, values: SpecValues = {}, problems: Problem[] = [], isSubmitted = false): HTMLElement {
  const [key = ""] = Object.keys(properties);
  const section = sectionsOf({ properties }).find((one) => one.key === key);
  if (section === undefined) throw new Error("The schema has no such section.");
  render(<FoldedSection section={section} context={{ values, problems, datasets: [], tokenizers: [], help: {}, isSubmitted, onChange: () => undefined }} />);
  return screen.getByRole("button", { name: new RegExp(`^${section.label}`) });
}

const summary = (values: SpecValues) => show({ optimizer: OPTIMIZER }, values).textContent;

it("names the group of fields that mean little without it", () => {
  const factors = { "optimizer.learning_rate_factors.embedding": "0.5", "optimizer.learning_rate_factors.head": "2" };
  expect(summary({ "optimizer.clip_norm": "2", ...factors })).toContain("clip norm 2, learning rate factors: embedding 0.5, head 2");
});

it("does not name the group that the kind shows", () => {
  expect(summary({ "optimizer.kind": "muon", "optimizer.muon.momentum": "0.9" })).toContain("kind muon, momentum 0.9");
});

const VALIDATION: JsonSchema = {
  properties: { prompts: { type: "array", items: { type: "string" }, default: [] }, every_steps: { type: "integer", default: 100 } },
};

it.each([
  [true, "true"],
  [false, "false"],
])("opens at a problem once the run is started (%s), and goes to the list of an element in any case", (isSubmitted, isOpen) => {
  const header = show({ validation: VALIDATION }, {}, [{ field: "validation.prompts.0", message: "Must not be empty." }], isSubmitted);
  expect(header.textContent).toContain("needs attention");
  expect(header.getAttribute("aria-expanded")).toBe(isOpen);
  goToField("validation.prompts.0");
  expect(document.activeElement).toBe(screen.getByLabelText("Prompts"));
});

it("goes to the section of a field that is not shown, and leaves it open", () => {
  const header = show({ validation: VALIDATION });
  goToField("validation.other");
  goToField("validation.other");
  expect(document.activeElement).toBe(header);
  expect(header.getAttribute("aria-expanded")).toBe("true");
});
