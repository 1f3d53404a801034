import { expect, it } from "vitest";
import { idsOfSharedNames } from "@/lib/sharedNames";

it("finds the items whose name another one has too, however often one is listed", () => {
  const pilot = { id: "run_1", name: "pilot" };
  expect(idsOfSharedNames([pilot, pilot, { id: "run_2", name: "wide" }])).toEqual(new Set());
  expect(idsOfSharedNames([pilot, { id: "run_2", name: "wide" }, { id: "run_3", name: "pilot" }])).toEqual(new Set(["run_1", "run_3"]));
});
