import { expect, it } from "vitest";
import type { SpecCheck } from "@/api/types";
import { dataText, lengthText } from "@/features/runs/form/checkedHelp";
import { aRun } from "@tests/support/runs";

/** Of a run of 5,000 steps of 512 tokens. */
function aCheck(trainTokens: number | null): SpecCheck {
  return { valid: true, problems: [], spec: aRun().spec, parameters: 1, train_tokens: trainTokens, warnings: [] };
}

it.each([
  [null, "5,000 steps are 2.56 M tokens."],
  [100_000_000, "5,000 steps are 2.56 M tokens, less than a tenth of the training data."],
  [256_000, "5,000 steps are 2.56 M tokens, 10 times the training data."],
  [50_000, "5,000 steps are 2.56 M tokens, 51 times the training data. Beyond about 40 passes, more training hardly helps: train fewer steps, or add data."],
])("says how often %s training tokens are repeated, and when that no longer helps", (trainTokens, text) => {
  expect(lengthText(aCheck(trainTokens), 0)).toBe(text);
});

it("counts only the steps that a fork adds", () => {
  expect(lengthText(aCheck(null), 4_900)).toBe("The 100 more steps are 51.2 k tokens.");
});

it("knows nothing until a spec was checked", () => {
  expect(lengthText(undefined, 0)).toBe("Optimizer steps of the run.");
  expect(dataText(undefined)).toBe("The data the model trains on.");
});

it("says that tokens are counted later", () => {
  expect(dataText(aCheck(null))).toContain("its tokens are counted when it is prepared with this tokenizer.");
  expect(dataText(aCheck(1_000_000))).toContain("1 M training tokens with this tokenizer.");
});
