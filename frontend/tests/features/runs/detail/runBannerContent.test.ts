import { expect, it } from "vitest";
import { bannerOf } from "@/features/runs/detail/runBannerContent";
import { aRun } from "@tests/support/runs";

const NOW = Date.parse("2026-11-21T14:00:00Z");

it("is hidden while a run trains, unless its node is silent", () => {
  expect(bannerOf(aRun({ state: "running" }), NOW)).toBeNull();
  expect(bannerOf(aRun({ state: "running", suspect_seconds: 34 }), NOW)).toMatchObject({
    tone: "warn",
    message: "No contact with node node-a for 34 s.",
  });
});

it("links a failure to its explanation", () => {
  const failed = (reason: "data" | "crashed" | "out_of_memory", step: number) =>
    bannerOf(aRun({ state: "failed", reason, sentence: "It failed.", summary: { ...aRun().summary, step } }), NOW)?.links;
  expect(failed("data", 0)).toEqual(["dataset"]);
  expect(failed("crashed", 0)).toEqual(["logs", "like"]);
  expect(failed("out_of_memory", 10)).toEqual(["like", "checkpoints"]);
});

it("counts down to the next attempt", () => {
  const next = (seconds: number) =>
    bannerOf(aRun({ state: "retry_wait", retry_at: new Date(NOW + seconds * 1_000).toISOString() }), NOW)?.next;
  expect(next(20)).toBe("It resumes in 20 s.");
  expect(next(-3)).toBe("It resumes in a moment.");
});

it("suggests nothing for a run cancelled before its first step", () => {
  const next = (step: number) => bannerOf(aRun({ state: "cancelled", summary: { ...aRun().summary, step } }), NOW)?.next;
  expect(next(0)).toBe("");
  expect(next(5)).toContain("Fork");
});
