import { expect, it } from "vitest";
import { choiceId } from "@/features/runs/form/choiceId";

const CHOICES = [
  { id: "ds_a", name: "letters" },
  { id: "ds_b", name: "rows" },
  { id: "ds_c", name: "rows" },
  { id: "ds_d", name: "ds_a" },
];

it("finds what a spec names, unless several have the name", () => {
  expect(choiceId(CHOICES, "ds_b")).toBe("ds_b");
  expect(choiceId(CHOICES, "letters")).toBe("ds_a");
  expect(choiceId(CHOICES, "rows")).toBe("rows");
  expect(choiceId(CHOICES, "none")).toBe("none");
  expect(choiceId(CHOICES, "ds_a"), "an id comes before a name").toBe("ds_a");
});
