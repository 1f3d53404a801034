import { expect, it } from "vitest";
import { linkLabels, partsOf } from "@/features/runs/form/formParts";
import { sectionsOf } from "@/features/runs/spec/specFields";

it("calls a field as the form shows it, and a folded one after its section", () => {
  const integer = { type: "integer" };
  const sections = sectionsOf({
    properties: {
      name: { type: "string" },
      schedule: { properties: { steps: integer, warmup_steps: integer } },
      validation: { properties: { steps: integer } },
      resources: { properties: { slots_per_node: integer, nodes: integer } },
    },
  });
  const labelOf = linkLabels(partsOf(sections), sections);
  expect(["name", "schedule.steps", "resources.slots_per_node"].map(labelOf)).toEqual(["Name", "Steps", "Slots per node"]);
  expect(["schedule.warmup_steps", "validation.steps.0", "resources.nodes"].map(labelOf)).toEqual(["Schedule: warmup steps", "Validation: steps", "Resources: nodes"]);
  expect(labelOf("other.field")).toBe("other.field");
});
