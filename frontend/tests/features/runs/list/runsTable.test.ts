import { describe, expect, it } from "vitest";
import { eligibleRuns, parseTags } from "@/features/runs/actions/bulkRequests";
import { specChanges } from "@/features/runs/form/copyRun";
import { recipeSpecOf } from "@/features/runs/recipes/recipes";
import { columnWidth, DEFAULT_COLUMNS, parseColumns, tableWidthPx, visibleColumns, storeColumns, storedColumns, toggleColumn } from "@/features/runs/list/runColumns";
import { parseRunsSearch, parseTypedFilter, toggleTag } from "@/features/runs/list/runFilter";
import { markSeen, newlyFailed, lastSeen } from "@/features/runs/list/lastSeen";
import { aRun } from "@tests/support/runs";

describe("the columns", () => {
  it("are parsed from the address in standard order, ignoring unknown names", () => {
    expect(parseColumns("time,loss,made-up")).toEqual(["loss", "time"]);
    expect(parseColumns("made-up")).toBeUndefined();
    expect(parseColumns(7)).toBeUndefined();
  });

  it("are stored per user", () => {
    storeColumns("ada", ["loss"]);
    expect(storedColumns("ada")).toEqual(["loss"]);
    expect(storedColumns("ben")).toBeUndefined();
  });

  it("can be toggled", () => {
    expect(toggleColumn(["loss", "time"], "mfu")).toEqual(["mfu", "loss", "time"]);
    expect(toggleColumn(["loss", "time"], "loss")).toEqual(["time"]);
  });

  it("fit, with tags, beside the sidebar on a screen 1440 px wide, even if the table has a scrollbar", () => {
    expect(tableWidthPx(DEFAULT_COLUMNS)).toBeLessThanOrEqual(1_244 - 15);
  });

  it("hide the tags while no run has one", () => {
    expect(visibleColumns(DEFAULT_COLUMNS, [aRun()])).not.toContain("tags");
    expect(visibleColumns(DEFAULT_COLUMNS, [aRun(), aRun({ tags: ["night"] })])).toContain("tags");
  });
});

describe("the filter", () => {
  it("parses tags, states and `by:me` from the typed text", () => {
    expect(parseTypedFilter({}, "pilot tag:night state:queued by:me 7")).toEqual({
      filter: { tag: ["night"], state: ["queued"], mine: true },
      rest: "pilot 7",
    });
    expect(parseTypedFilter({ state: ["failed"] }, "state:starting").filter.state).toEqual(["leased", "starting", "failed"]);
    expect(parseTypedFilter({}, "tag: state:odd http://x").rest).toBe("tag: state:odd http://x");
  });

  it("parses tags and pages from the address, ignoring invalid ones", () => {
    expect(parseRunsSearch({ tag: ["night", "Not A Tag", "night"], page: 3.7 })).toEqual({ tag: ["night"], page: 3 });
    expect(parseRunsSearch({ tag: 47, page: "many" })).toEqual({ tag: ["47"] });
    expect(parseRunsSearch({ page: -2 })).toEqual({});
  });

  it("adds and removes a tag", () => {
    expect(toggleTag({ tag: ["a"] }, "b").tag).toEqual(["a", "b"]);
    expect(toggleTag({ tag: ["a"], q: "x" }, "a")).toEqual({ q: "x" });
  });
});

describe("actions on many", () => {
  const runs = [
    aRun({ id: "1", state: "running" }),
    aRun({ id: "2", state: "paused" }),
    aRun({ id: "3", state: "failed" }),
    aRun({ id: "4", state: "stopping", verdict: "cancel" }),
    aRun({ id: "5", state: "stopping", verdict: "pause" }),
  ];
  it.each([
    ["pause", ["1"]],
    ["resume", ["2"]],
    ["cancel", ["1", "2", "5"]],
    ["delete", ["3"]],
  ] as const)("%s applies to the runs that allow it", (verb, ids) => {
    expect(eligibleRuns(verb, runs).map(({ id }) => id)).toEqual(ids);
  });

  it("parses tags as people type them", () => {
    expect(parseTags(" Night, week-47  night ")).toEqual(["night", "week-47"]);
  });
});

describe("a fork's changes", () => {
  it("are all differences including added and removed sections, except the name", () => {
    const parent = { name: "a", optimizer: { rate: 1, clip: 1 }, precision: { kind: "bf16", fp8: null } };
    const whole = { name: "b", optimizer: { rate: 2, clip: 1 }, precision: { kind: "fp8", fp8: { limit: 3 } } };
    expect(specChanges(parent, whole)).toEqual({ "optimizer.rate": 2, "precision.kind": "fp8", "precision.fp8.limit": 3 });
    expect(specChanges(whole, parent)).toEqual({ "optimizer.rate": 1, "precision.kind": "bf16", "precision.fp8": null });
    expect(specChanges(parent, { ...parent, name: "c" })).toEqual({});
  });
});

it("keeps everything in a recipe except the run's name and data", () => {
  const spec = { name: "a", data: { dataset: "ds_1", version: 2, tokenizer: { kind: "bytes" } }, seed: 1 };
  expect(recipeSpecOf(spec)).toEqual({ data: { tokenizer: { kind: "bytes" } }, seed: 1 });
  expect(recipeSpecOf({ name: "a", data: { dataset: "ds_1" } })).toEqual({});
});

it("lists failures since the last visit, latest first", () => {
  const at = (time: string) => aRun({ id: time, state: "failed", ended: `2026-11-21T${time}:00Z` });
  const now = Date.parse("2026-11-21T14:00:00Z");
  const runs = [at("13:00"), at("15:30"), at("15:00"), aRun()];
  expect(newlyFailed(runs, lastSeen("ada", "lab", now)).map(({ id }) => id)).toEqual(["15:30", "15:00", "13:00"]);
  markSeen("ada", "lab", now);
  expect(newlyFailed(runs, lastSeen("ada", "lab")).map(({ id }) => id)).toEqual(["15:30", "15:00"]);
  expect(lastSeen("ben", "lab", now)).toBeLessThan(now);
});

it("gives columns of names a part of the room that all columns leave", () => {
  expect(columnWidth("loss", ["loss", "by"])).toBe("72px");
  expect(columnWidth("by", ["loss", "by"])).toBe("calc(76px + clamp(0px, (100cqw - 460px) / 8, 88px))");
});
