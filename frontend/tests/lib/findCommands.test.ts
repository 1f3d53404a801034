import { expect, it } from "vitest";
import { found } from "@/lib/findCommands";

const items = [{ words: "Go to Runs" }, { words: "Runs of night", also: "search" }, { words: "New run" }, { words: "Overruns" }, { words: "Dark", also: "theme night" }];
const words = (typed: string) => found(items, typed).map(({ words }) => words);

it("finds what contains every word, and first what begins with it", () => {
  expect(words("")).toHaveLength(items.length);
  expect(words("run")).toEqual(["Runs of night", "Go to Runs", "New run", "Overruns"]);
  expect(words("NIGHT runs")).toEqual(["Runs of night"]);
  expect(words("theme")).toEqual(["Dark"]);
  expect(words("nothing such")).toEqual([]);
});
