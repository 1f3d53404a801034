import { expect, it } from "vitest";
import { tokenizerText } from "@/features/datasets/detail/tokenizerText";

it("names the source of a tokenizer, unless that is the dataset itself", () => {
  const tokenizer = { kind: "dataset", source: "ds_1", vocabulary: 4_096 } as const;
  expect(tokenizerText(tokenizer, "ds_2")).toBe("tokenizer of dataset ds_1 of 4,096");
  expect(tokenizerText(tokenizer, "ds_1")).toBe("tokenizer of this dataset of 4,096");
  expect(tokenizerText({ kind: "bpe", source: null, vocabulary: null }, "ds_1")).toBe("BPE, 4,096 tokens");
});
