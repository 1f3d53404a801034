import { expect, it } from "vitest";
import { helpOf } from "@/features/runs/form/fieldHelp";
import type { SpecField } from "@/features/runs/spec/specFields";

function field(change: Partial<SpecField>): SpecField {
  return { path: "precision.kind", label: "Precision", help: "", kind: "choice", choices: [], choiceValues: [], acceptsNumberList: false, defaultText: "auto", required: false, isNullable: false, ...change };
}

it.each([
  [field({ help: "`fp8`: as set in `precision.fp8`.", choices: ["auto", "fp8"] }), "fp8: as set in “FP8”."],
  [field({ path: "parallelism.shard", help: "With `zero_stage` above 0.", kind: "integer", defaultText: "" }), "With “ZeRO stage” above 0."],
  [field({ path: "model.attention", help: "`localized_filtering` filters.", choices: ["full", "localized_filtering"] }), "localized_filtering filters."],
])("names other fields by their labels (%#)", (given, help) => {
  expect(helpOf(given, "bpe")).toBe(help);
});
