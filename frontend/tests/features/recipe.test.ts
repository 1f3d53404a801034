import { expect, it } from "vitest";
import type { Recipe } from "@/api/types";
import { draftOf, mistakesOf, partsOf, partWords, recipeOf, STANDARD_RECIPE } from "@/features/datasets/recipe";

const FULL: Recipe = {
  read: { text_documents: "blank_line", field: "body" },
  rejected_limit: 0.001,
  drop_duplicates: true,
  rules: { min_characters: 200, max_repeated_line_fraction: 0.3, min_letter_fraction: 0.07 },
  mix: [],
};

it("comes back from the form as it went in", () => {
  expect(recipeOf(draftOf(FULL))).toEqual(FULL);
  expect(recipeOf(draftOf(STANDARD_RECIPE))).toEqual(STANDARD_RECIPE);
});

it("takes an empty limit as the usual one, and an empty rule as none", () => {
  const draft = { ...draftOf(FULL), rejectedLimit: " ", rules: { min_characters: "" } };
  expect(recipeOf(draft)).toMatchObject({ rejected_limit: 0.01, rules: {} });
});

it("names each field that holds no number, and takes grouped digits", () => {
  const draft = { ...draftOf(FULL), rejectedLimit: "few", rules: { min_characters: "1,000", max_characters: "a lot" } };
  expect(mistakesOf(draft)).toEqual({
    rejected_limit: "few is not a number. Write one, or leave it empty.",
    max_characters: "a lot is not a number. Write one, or leave it empty.",
  });
  expect(mistakesOf({ ...draft, rejectedLimit: "2", rules: { min_characters: "1,000" } })).toEqual({});
});

it("says in words what it does", () => {
  expect(partsOf(FULL).join(", ")).toBe(
    "field body, text split at blank lines, without duplicates, shortest 200, least share of letters 7 %, most repeated lines 30 %",
  );
  expect(partsOf(STANDARD_RECIPE)).toEqual([]);
  expect(partWords("rules.min_characters")).toBe("too short");
  expect(partWords("something_new")).toBe("something new");
});
