import { expect, it } from "vitest";
import { safeRedirect } from "@/app/safeRedirect";

it("keeps the addresses of this site", () => {
  expect(safeRedirect("/lab/runs?q=night#top")).toBe("/lab/runs?q=night#top");
  expect(safeRedirect(undefined)).toBe("/");
});

it.each(["https://example.org/", "//example.org", "/\\example.org", "/\t/example.org", "/\n/example.org", "/.//example.org", "lab", "//"])("does not leave for %j", (next) => {
  expect(new URL(safeRedirect(next), location.origin).origin).toBe(location.origin);
});
