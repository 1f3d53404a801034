import { describe, expect, it } from "vitest";
import { boundsOf, moveWindow, parseWindow, windowFromSelection, type StepWindow } from "@/lib/charts/stepWindow";

const NEWEST = 1_000;
const WHOLE = { from: 0, to: NEWEST };

describe("a selection", () => {
  it("becomes the steps it covers", () => {
    expect(windowFromSelection(100.4, 199.2, WHOLE, NEWEST, true)).toEqual({ from: 100, to: 200 });
  });

  it("that reaches the end of a growing run follows it; that of an ended one does not", () => {
    expect(windowFromSelection(900.2, 990, WHOLE, NEWEST, true)).toEqual({ last: 101 });
    expect(windowFromSelection(900.2, 990, WHOLE, NEWEST, false)).toEqual({ from: 900, to: 1_000 });
  });

  it("of too few steps or of everything is no window", () => {
    expect(windowFromSelection(10.2, 10.4, WHOLE, NEWEST, true)).toBeNull();
    expect(windowFromSelection(-5, 1_010, WHOLE, NEWEST, true)).toBeNull();
  });
});

describe("a move", () => {
  const middle: StepWindow = { from: 400, to: 600 };

  it.each([
    ["in", middle, { from: 450, to: 550 }],
    ["out", middle, { from: 300, to: 700 }],
    ["earlier", middle, { from: 350, to: 550 }],
    ["later", middle, { from: 450, to: 650 }],
    ["later", { from: 790, to: 990 }, { last: 201 }],
    ["earlier", { last: 200 }, { from: 751, to: 950 }],
    ["in", null, { last: 501 }],
    ["out", { last: 600 }, null],
    ["earlier", { from: 0, to: 100 }, { from: 0, to: 100 }],
    ["earlier", null, null],
    ["whole", middle, null],
    ["in", { from: 10, to: 15 }, { from: 10, to: 15 }],
  ] as const)("%s from %j leads to %j", (move, from, to) => {
    expect(moveWindow(from, move, NEWEST, true)).toEqual(to);
  });
});

it("a following window shows the newest steps, a fixed one its own", () => {
  expect(boundsOf({ last: 100 }, NEWEST)).toEqual({ from: 901, to: 1_000 });
  expect(boundsOf({ last: 100 }, 30)).toEqual({ from: 0, to: 30 });
  expect(boundsOf({ from: 5, to: 10 }, NEWEST)).toEqual({ from: 5, to: 10 });
  expect(boundsOf(null, NEWEST)).toEqual(WHOLE);
});

it("parses a window from an address, ignoring invalid ones", () => {
  expect(parseWindow({ from: 5, to: 90 })).toEqual({ from: 5, to: 90 });
  expect(parseWindow({ last: 90 })).toEqual({ last: 90 });
  for (const wrong of [{}, { from: 5 }, { from: 9, to: 5 }, { from: -5, to: 5 }, { from: 1.5, to: 9 }, { from: "a", to: 9 }, { last: 0 }]) {
    expect(parseWindow(wrong)).toBeNull();
  }
});
