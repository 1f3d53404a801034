import { expect, it } from "vitest";
import { keySequence } from "@/app/palette/keySequence";

it("matches single keys and pairs, and forgets a first key after a while or a wrong second one", () => {
  const keys = keySequence(["g r", "g d", "n", "?"]);
  expect(keys.press("n", 0)).toEqual({ command: "n" });
  expect(keys.press("g", 10)).toBe("waiting");
  expect(keys.press("r", 500)).toEqual({ command: "g r" });
  expect(keys.press("r", 600)).toBe("none");
  expect(keys.press("g", 1_000)).toBe("waiting");
  expect(keys.press("n", 1_100)).toBe("none");
  expect(keys.press("g", 2_000)).toBe("waiting");
  expect(keys.press("n", 9_000)).toEqual({ command: "n" });
});
