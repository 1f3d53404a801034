import { expect, it } from "vitest";
import { namesApart } from "@/lib/namesApart";

it("adds an id's end where names are equal, and only there", () => {
  const names = namesApart([
    { id: "ds_aaaaaaaa1111", name: "poems" },
    { id: "ds_aaaaaaaa2222", name: "poems" },
    { id: "ds_aaaaaaaa3333", name: "letters" },
  ]);
  expect([...names.values()]).toEqual(["poems (…aa1111)", "poems (…aa2222)", "letters"]);
});
