import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { useSettled } from "@/lib/useSettled";

interface View {
  from: number;
}

const PAUSE_MS = 250;
let told: View[] = [];

beforeEach(() => {
  told = [];
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

function begin(source: View) {
  return renderHook(({ source }) => useSettled(source, (view) => told.push(view)), { initialProps: { source } });
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

it("shows at once what is chosen, and tells the last of it after a pause", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  pass(PAUSE_MS - 1);
  choose(hook, 2);
  expect(hook.result.current[0]).toEqual({ from: 2 });
  pass(PAUSE_MS - 1);
  expect(told).toEqual([]);
  pass(1);
  expect(told).toEqual([{ from: 2 }]);
});

it("keeps what was chosen since, when the source says what it was told", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  pass(PAUSE_MS);
  choose(hook, 2);
  hook.rerender({ source: { from: 1 } });
  expect(hook.result.current[0]).toEqual({ from: 2 });
  pass(PAUSE_MS);
  expect(told).toEqual([{ from: 1 }, { from: 2 }]);
});

it("gives way to a source that changes by itself, and tells nothing then", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  hook.rerender({ source: { from: 7 } });
  expect(hook.result.current[0]).toEqual({ from: 7 });
  pass(2 * PAUSE_MS);
  expect(told).toEqual([]);
});

it("stays the same value while an equal source comes, and tells no way back to where it was", () => {
  const hook = begin({ from: 0 });
  const [first] = hook.result.current;
  hook.rerender({ source: { from: 0 } });
  expect(hook.result.current[0]).toBe(first);
  choose(hook, 1);
  choose(hook, 0);
  pass(2 * PAUSE_MS);
  expect(told).toEqual([]);
});

it("tells at once, and once, what was chosen last when it goes", () => {
  const hook = begin({ from: 0 });
  choose(hook, 1);
  hook.unmount();
  expect(told).toEqual([{ from: 1 }]);
  pass(2 * PAUSE_MS);
  expect(told).toEqual([{ from: 1 }]);
});

it("tells nothing when it goes with nothing chosen, or what it has told", () => {
  begin({ from: 0 }).unmount();
  const hook = begin({ from: 0 });
  choose(hook, 1);
  pass(PAUSE_MS);
  hook.unmount();
  expect(told).toEqual([{ from: 1 }]);
});
