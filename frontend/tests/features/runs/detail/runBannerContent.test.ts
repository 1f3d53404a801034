import { expect, it } from "vitest";
import { bannerOf, logFileOf, logLabel } from "@/features/runs/detail/runBannerContent";
import { aRun } from "@tests/support/runs";

const NOW = Date.parse("2026-11-21T14:00:00Z");

it("is hidden while a run trains, unless its node is silent", () => {
  expect(bannerOf(aRun({ state: "running" }), NOW)).toBeNull();
  expect(bannerOf(aRun({ state: "running", suspect_seconds: 34 }), NOW)).toMatchObject({
    tone: "warn",
    message: "No contact with node node-a for 34 s.",
  });
});

it("leads from a queued run to the queue, which has its place and expected start", () => {
  expect(bannerOf(aRun({ state: "queued", sentence: "needs 2 slots" }), NOW)).toMatchObject({ message: "needs 2 slots", links: ["queue"] });
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

it("offers the checkpoints of a paused run only if it can have some", () => {
  const banner = (step: number) => bannerOf(aRun({ state: "paused", sentence: "Paused.", summary: { ...aRun().summary, step } }), NOW);
  expect(banner(0)).toMatchObject({ next: "It has no slots. Resume it to queue it again.", links: [] });
  expect(banner(40)?.links).toEqual(["checkpoints"]);
});

it("does not repeat the figures of a finished run, but says that its loss rose", () => {
  const banner = (sentence: string) => bannerOf(aRun({ state: "succeeded", sentence }), NOW);
  const links = ["checkpoints", "fork", "like"];
  expect(banner("loss 2.810, 38.2 % MFU")).toMatchObject({ message: "The weights can be downloaded.", next: "", links });
  expect(banner("loss 7.910 (it rose from 2.810), 38.2 % MFU")).toMatchObject({
    message: "loss 7.910 (it rose from 2.810).",
    next: "The weights can be downloaded.",
    links,
  });
});

it("opens the log that the sentence names", () => {
  const file = (reason: "crashed" | "export_failed" | "bad_job", sentence: string) => logFileOf(aRun({ state: "failed", reason, sentence }));
  expect(file("crashed", "Rank 3 was killed by SIGKILL. Read the log of that rank.")).toBe("rank-3.log");
  expect(file("export_failed", "The export exited with code 1. Read export.log.")).toBe("export.log");
  expect(file("bad_job", "The trainer rejected the job.")).toBeUndefined();
  expect([logLabel("rank-3.log"), logLabel("export.log"), logLabel(undefined)]).toEqual(["View log of rank 3", "View export.log", "View logs"]);
});
