import { expect, it } from "vitest";
import { uniqueNames } from "@/lib/uniqueNames";

it("appends the end of an id only to duplicate names", () => {
  const names = uniqueNames([
    { id: "ds_aaaaaaaa1111", name: "poems" },
    { id: "ds_aaaaaaaa2222", name: "poems" },
    { id: "ds_aaaaaaaa3333", name: "letters" },
  ]);
  expect([...names.values()]).toEqual(["poems (a1111)", "poems (a2222)", "letters"]);
});
