import { expect, it } from "vitest";
import type { CurationSpec } from "@/api/types";
import { changeText, draftOf, mistakesOf, describeCuration, dropReason, curationOf, DEFAULT_CURATION } from "@/features/datasets/curation/curation";

const FULL: CurationSpec = {
  read: { text_documents: "blank_line", field: "body" },
  rejected_limit: 0.001,
  drop_duplicates: true,
  rules: { min_characters: 200, max_repeated_line_fraction: 0.3, min_letter_fraction: 0.07 },
  mix: [],
};

it("survives a round trip through the form", () => {
  expect(curationOf(draftOf(FULL))).toEqual(FULL);
  expect(curationOf(draftOf(DEFAULT_CURATION))).toEqual(DEFAULT_CURATION);
});

it("uses the default for an empty limit, and no filter for an empty rule", () => {
  const draft = { ...draftOf(FULL), rejectedLimit: " ", rules: { min_characters: "" } };
  expect(curationOf(draft)).toMatchObject({ rejected_limit: 0.01, rules: {} });
});

it("reports each field that is not a number, and accepts grouped digits", () => {
  const draft = { ...draftOf(FULL), rejectedLimit: "few", rules: { min_characters: "1,000", max_characters: "a lot" } };
  expect(mistakesOf(draft)).toEqual({
    rejected_limit: "few is not a number. Enter a number or leave the field empty.",
    max_characters: "a lot is not a number. Enter a number or leave the field empty.",
  });
  expect(mistakesOf({ ...draft, rejectedLimit: "2", rules: { min_characters: "1,000" } })).toEqual({});
  expect(mistakesOf({ ...draft, rejectedLimit: "0,5", rules: {} })).toHaveProperty("rejected_limit");
});

it("describes what it does", () => {
  expect(describeCuration(FULL).join(", ")).toBe(
    "documents from the field “body”, text split at blank lines, without duplicates, minimum length 200, minimum share of letters 7 %, maximum share of repeated lines 30 %",
  );
  expect(describeCuration(DEFAULT_CURATION)).toEqual([]);
  expect(dropReason("rules.min_characters")).toBe("too short");
  expect(dropReason("something_new")).toBe("something new");
});

it.each([
  ["curation.rejected_limit: 0.01 → 0.05", "Maximum unreadable documents: 1 % → 5 %"],
  ["curation.rules.max_repeated_line_fraction: empty → 0.3", "Maximum share of repeated lines: none → 30 %"],
  ["curation.rules.min_characters: 2 → 1,000", "Minimum length: 2 → 1,000"],
  ["curation.drop_duplicates: false → true", "Drop duplicates: no → yes"],
  ["curation.read.field: empty → body", "Field with the text: none → body"],
  ["Added a.txt (0123456789ab).", "Added a.txt (0123456789ab)."],
  ["curation.mix.ds_1: empty → weight 2", "curation.mix.ds_1: empty → weight 2"],
])("describes a version's change in the form's words", (change, words) => {
  expect(changeText(change)).toBe(words);
});
