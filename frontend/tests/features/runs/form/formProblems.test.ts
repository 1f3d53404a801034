import { expect, it } from "vitest";
import { fieldsInOrder, partsOf } from "@/features/runs/form/formParts";
import { formProblems } from "@/features/runs/form/formProblems";
import { sectionsOf, type SpecValues } from "@/features/runs/spec/specFields";
import { aDataset } from "@tests/support/datasets";

const integer = { type: "integer" };
const fields = fieldsInOrder(
  partsOf(
    sectionsOf({
      properties: {
        data: { required: ["dataset"], properties: { dataset: { type: "string" } } },
        batch: { properties: { micro_sequences: integer, global_sequences: integer } },
        parallelism: { properties: { pipeline: integer, zero_stage: integer } },
        precision: { properties: { kind: { enum: ["bf16", "fp8"] } } },
        resources: { properties: { slots_per_node: integer } },
      },
    }),
  ),
);

function problems(given: { field: string; message: string }[], values: SpecValues = {}) {
  return formProblems(given, { fields, values, datasets: [aDataset({ id: "ds_1" })], tokenizers: [] });
}

it.each([
  ["64 must be a multiple of batch.micro_sequences × data degree = 8 × 9 = 72.", "64 must be a multiple of “Micro batch (sequences)” × data degree = 8 × 9 = 72."],
  ["use zero_stage 2, or parallelism.pipeline 1", "use “ZeRO stage” 2, or “Pipeline” 1"],
  ["set precision.kind to bf16", "set “Precision” to bf16"],
  ["the largest that ever joined, data.example.org, has 2", "the largest that ever joined, data.example.org, has 2"],
  ["not `model.foo`", "not `model.foo`"],
  ["interleaved_zero_bubble cannot", "interleaved_zero_bubble cannot"],
])("names fields by their labels: %s", (message, shown) => {
  expect(problems([{ field: "batch.global_sequences", message }])).toEqual([{ field: "batch.global_sequences", message: shown }]);
});

it("follows the order of the form, so that a cause comes before what it breaks", () => {
  const found = problems([
    { field: "unknown", message: "" },
    { field: "batch.global_sequences", message: "" },
    { field: "resources.slots_per_node", message: "" },
  ]);
  expect(found.map(({ field }) => field)).toEqual(["resources.slots_per_node", "batch.global_sequences", "unknown"]);
});

it("asks for another dataset by name, not by id", () => {
  expect(problems([{ field: "data", message: "This field is required." }])).toEqual([{ field: "data.dataset", message: "Choose a dataset." }]);
  const gone = problems([{ field: "data.dataset", message: "Your team has no dataset with this id." }], { "data.dataset": "ds_2" });
  expect(gone[0]?.message).toBe("The chosen dataset does not exist in this team; it may have been deleted. Choose another one.");
  const kept = problems([{ field: "data.dataset", message: "It is still being read." }], { "data.dataset": "ds_1" });
  expect(kept[0]?.message).toBe("It is still being read.");
  const several = problems([{ field: "data.dataset", message: "Several datasets have this name." }], { "data.dataset": aDataset({ id: "ds_1" }).name });
  expect(several[0]?.message).toBe("Several datasets have this name.");
});
