import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { useDelayedCommit } from "@/lib/hooks/useDelayedCommit";

interface View {
  from: number;
}

const PAUSE_MS = 250;
let committed: View[] = [];

beforeEach(() => {
  committed = [];
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

function begin(source: View) {
  return renderHook(({ source }) => useDelayedCommit(source, (view) => committed.push(view)), { initialProps: { source } });
}

function pass(milliseconds: number): void {
  act(() => {
    vi.advanceTimersByTime(milliseconds);
  });
}

function choose(hook: ReturnType<typeof begin>, from: number): void {
  act(() => {
    hook.result.current[1]({ from });
  });
}

it("shows a value immediately, and commits the last one after a pause", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  pass(PAUSE_MS - 1);
  choose(hook, 2);
  expect(hook.result.current[0]).toEqual({ from: 2 });
  pass(PAUSE_MS - 1);
  expect(committed).toEqual([]);
  pass(1);
  expect(committed).toEqual([{ from: 2 }]);
});

it("keeps a newer value when the source reports the committed one", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  pass(PAUSE_MS);
  choose(hook, 2);
  hook.rerender({ source: { from: 1 } });
  expect(hook.result.current[0]).toEqual({ from: 2 });
  pass(PAUSE_MS);
  expect(committed).toEqual([{ from: 1 }, { from: 2 }]);
});

it("takes over a changed source without committing", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  hook.rerender({ source: { from: 7 } });
  expect(hook.result.current[0]).toEqual({ from: 7 });
  pass(2 * PAUSE_MS);
  expect(committed).toEqual([]);
});

it("keeps its identity while the source is equal, and does not commit a return to the start", () => {
  const hook = begin({ from: 0 });
  const [first] = hook.result.current;
  hook.rerender({ source: { from: 0 } });
  expect(hook.result.current[0]).toBe(first);
  choose(hook, 1);
  choose(hook, 0);
  pass(2 * PAUSE_MS);
  expect(committed).toEqual([]);
});

it("commits the last value once on unmount", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  hook.unmount();
  expect(committed).toEqual([{ from: 1 }]);
  pass(2 * PAUSE_MS);
  expect(committed).toEqual([{ from: 1 }]);
});

it("commits nothing on unmount without a new value", () => {
  begin({ from: 0 }).unmount();
  const hook = begin({ from: 0 });
  choose(hook, 1);
  pass(PAUSE_MS);
  hook.unmount();
  expect(committed).toEqual([{ from: 1 }]);
});
