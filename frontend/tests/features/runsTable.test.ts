import { describe, expect, it } from "vitest";
import { takenBy, tagsOf } from "@/features/runs/bulk";
import { changesOf } from "@/features/runs/fork";
import { ofRun } from "@/features/runs/recipes";
import { FIRST_COLUMNS, parseColumns, shownColumns, storeColumns, storedColumns, toggledColumn } from "@/features/runs/runColumns";
import { parseRunsSearch, spoken, toggledTag } from "@/features/runs/runFilter";
import { markSeen, newlyFailed, seenUntil } from "@/features/runs/seen";
import { aRun } from "../runs";

describe("the columns", () => {
  it("are read from the address in their own order, and nothing else is", () => {
    expect(parseColumns("time,loss,made-up")).toEqual(["loss", "time"]);
    expect(parseColumns("made-up")).toBeUndefined();
    expect(parseColumns(7)).toBeUndefined();
  });

  it("are kept for each person", () => {
    storeColumns("ada", ["loss"]);
    expect(storedColumns("ada")).toEqual(["loss"]);
    expect(storedColumns("ben")).toBeUndefined();
  });

  it("come and go", () => {
    expect(toggledColumn(["loss", "time"], "mfu")).toEqual(["mfu", "loss", "time"]);
    expect(toggledColumn(["loss", "time"], "loss")).toEqual(["time"]);
  });

  it("leave out the tags while nothing has one", () => {
    expect(shownColumns(FIRST_COLUMNS, [aRun()])).not.toContain("tags");
    expect(shownColumns(FIRST_COLUMNS, [aRun(), aRun({ tags: ["night"] })])).toContain("tags");
  });
});

describe("the filter", () => {
  it("hears tags, states and one's own among the words", () => {
    expect(spoken({}, "pilot tag:night state:waiting by:me 7")).toEqual({
      filter: { tag: ["night"], state: ["queued"], mine: true },
      rest: "pilot 7",
    });
    expect(spoken({ state: ["failed"] }, "state:starting").filter.state).toEqual(["leased", "starting", "failed"]);
    expect(spoken({}, "tag: state:odd http://x").rest).toBe("tag: state:odd http://x");
  });

  it("takes tags and pages from the address, and no nonsense", () => {
    expect(parseRunsSearch({ tag: ["night", "Not A Tag", "night"], page: 3.7 })).toEqual({ tag: ["night"], page: 3 });
    expect(parseRunsSearch({ tag: 47, page: "many" })).toEqual({ tag: ["47"] });
    expect(parseRunsSearch({ page: -2 })).toEqual({});
  });

  it("adds a tag and takes it away", () => {
    expect(toggledTag({ tag: ["a"] }, "b").tag).toEqual(["a", "b"]);
    expect(toggledTag({ tag: ["a"], q: "x" }, "a")).toEqual({ q: "x" });
  });
});

describe("verbs for many", () => {
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
  ] as const)("%s is for those that it can be for", (verb, ids) => {
    expect(takenBy(verb, runs).map(({ id }) => id)).toEqual(ids);
  });

  it("reads tags as people write them", () => {
    expect(tagsOf(" Night, week-47  night ")).toEqual(["night", "week-47"]);
  });
});

describe("a fork's changes", () => {
  it("are what differs, a section that comes or goes included, and not the name", () => {
    const parent = { name: "a", optimizer: { rate: 1, clip: 1 }, precision: { kind: "bf16", fp8: null } };
    const whole = { name: "b", optimizer: { rate: 2, clip: 1 }, precision: { kind: "fp8", fp8: { limit: 3 } } };
    expect(changesOf(parent, whole)).toEqual({ "optimizer.rate": 2, "precision.kind": "fp8", "precision.fp8.limit": 3 });
    expect(changesOf(whole, parent)).toEqual({ "optimizer.rate": 1, "precision.kind": "bf16", "precision.fp8": null });
    expect(changesOf(parent, { ...parent, name: "c" })).toEqual({});
  });
});

it("keeps all in a recipe but the run's name and its data", () => {
  const spec = { name: "a", data: { dataset: "ds_1", version: 2, tokenizer: { kind: "bytes" } }, seed: 1 };
  expect(ofRun(spec)).toEqual({ data: { tokenizer: { kind: "bytes" } }, seed: 1 });
  expect(ofRun({ name: "a", data: { dataset: "ds_1" } })).toEqual({});
});

it("tells what failed since one looked, the last one first", () => {
  const at = (time: string) => aRun({ id: time, state: "failed", ended: `2026-11-21T${time}:00Z` });
  const now = Date.parse("2026-11-21T14:00:00Z");
  const runs = [at("13:00"), at("15:30"), at("15:00"), aRun()];
  expect(newlyFailed(runs, seenUntil("ada", "lab", now)).map(({ id }) => id)).toEqual(["15:30", "15:00", "13:00"]);
  markSeen("ada", "lab", now);
  expect(newlyFailed(runs, seenUntil("ada", "lab")).map(({ id }) => id)).toEqual(["15:30", "15:00"]);
  expect(seenUntil("ben", "lab", now)).toBeLessThan(now);
});
