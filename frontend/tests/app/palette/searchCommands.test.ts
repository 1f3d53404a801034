import { expect, it } from "vitest";
import { searchCommands } from "@/app/palette/searchCommands";

const items = [{ label: "Go to Runs" }, { label: "Runs of night", keywords: "search" }, { label: "New run" }, { label: "Overruns" }, { label: "Dark", keywords: "theme night" }];
const labels = (typed: string) => searchCommands(items, typed).map(({ label }) => label);

it("finds items that contain every word, those that start with it first", () => {
  expect(labels("")).toHaveLength(items.length);
  expect(labels("run")).toEqual(["Runs of night", "Go to Runs", "New run", "Overruns"]);
  expect(labels("NIGHT runs")).toEqual(["Runs of night"]);
  expect(labels("theme")).toEqual(["Dark"]);
  expect(labels("nothing such")).toEqual([]);
});
