/**
 * The window of steps that a run's charts show: fixed, or the latest steps of a growing run. It is in steps
 * for every x axis, so that it survives a change of axis.
 */

export type StepWindow = { from: number; to: number } | { last: number };

export interface Bounds {
  from: number;
  to: number;
}

export type WindowMove = "in" | "out" | "earlier" | "later" | "whole";

/** The minimum number of steps of a window. */
const MIN_STEPS = 4;
/** How far a pan by key moves, as a fraction of the window. */
const PAN_FRACTION = 0.25;
/** A selection that ends this close to the latest step, as a fraction of the window, follows it. */
const SNAP_FRACTION = 0.02;

/** The steps that a window shows, given the run's latest step; all of them without a window. */
export function boundsOf(window: StepWindow | null, newest: number): Bounds {
  if (window === null) return { from: 0, to: newest };
  if ("last" in window) return { from: Math.max(0, newest - window.last + 1), to: newest };
  return window;
}

/** The window of a selection; null for the full run. A selection that reaches the end of a growing run follows it. */
export function windowFromSelection(from: number, to: number, shown: Bounds, newest: number, isGrowing: boolean): StepWindow | null {
  const [low, high] = [Math.max(0, Math.floor(from)), Math.min(newest, Math.ceil(to))];
  const atEnd = high >= newest - SNAP_FRACTION * (shown.to - shown.from);
  return clampWindow({ from: low, to: atEnd ? newest : high }, newest, isGrowing);
}

/** The window after a key or button: half or twice as wide, or a quarter to one side. */
export function moveWindow(window: StepWindow | null, move: WindowMove, newest: number, isGrowing: boolean): StepWindow | null {
  if (move === "whole") return null;
  const shown = boundsOf(window, newest);
  const width = shown.to - shown.from;
  const stride = Math.max(1, Math.round(width * PAN_FRACTION));
  const atEnd = shown.to >= newest;
  switch (move) {
    case "in":
      // At the end of the run the latest step stays visible.
      return clampWindow({ from: shown.from + (atEnd ? 2 : 1) * stride, to: shown.to - (atEnd ? 0 : stride) }, newest, isGrowing, window);
    case "out":
      return clampWindow({ from: shown.from - (atEnd ? 4 : 2) * stride, to: shown.to + 2 * stride }, newest, isGrowing);
    case "earlier":
      return pan(shown, -Math.min(stride, shown.from), newest, isGrowing, window);
    case "later":
      return pan(shown, Math.min(stride, Math.max(0, newest - shown.to)), newest, isGrowing, window);
  }
}

function pan(shown: Bounds, by: number, newest: number, isGrowing: boolean, window: StepWindow | null): StepWindow | null {
  if (window === null || by === 0) return window;
  return clampWindow({ from: shown.from + by, to: shown.to + by }, newest, isGrowing);
}

/** Limits a window to the run; `fallback` if too few steps would be left. */
function clampWindow({ from, to }: Bounds, newest: number, isGrowing: boolean, fallback: StepWindow | null = null): StepWindow | null {
  const [low, high] = [Math.max(0, from), Math.min(newest, to)];
  if (high - low < MIN_STEPS) return fallback;
  if (low <= 1 && high >= newest) return null;
  return isGrowing && high >= newest ? { last: newest - low + 1 } : { from: low, to: high };
}

/** `?from=100&to=200`, or `?last=500`. */
export function parseWindow(search: Record<string, unknown>): StepWindow | null {
  const [from, to, last] = ["from", "to", "last"].map((name) => nonNegativeInteger(search[name]));
  if (last !== undefined && last >= MIN_STEPS) return { last };
  return from !== undefined && to !== undefined && to - from >= MIN_STEPS ? { from, to } : null;
}

function nonNegativeInteger(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
