/**
 * The stretch of steps that the charts of a run show: fixed, or the newest so many of a run that grows.
 * Steps are what counts, whatever stands on the x axis, so that the window stays when the axis changes.
 */

export type StepWindow = { from: number; to: number } | { last: number };

export interface Bounds {
  from: number;
  to: number;
}

export type WindowMove = "in" | "out" | "earlier" | "later" | "whole";

/** Fewer steps than this are no curve. */
const LEAST = 4;
/** What a move by key goes on by, as a share of what is shown. */
const STRIDE = 0.25;
/** Who ends a selection this close to the newest step, as a share of what was shown, wants to follow it. */
const NEAR_END = 0.02;

/** The steps that a window shows while `newest` is the run's last one; all of them without a window. */
export function boundsOf(window: StepWindow | null, newest: number): Bounds {
  if (window === null) return { from: 0, to: newest };
  if ("last" in window) return { from: Math.max(0, newest - window.last + 1), to: newest };
  return window;
}

/** What a selection from `from` to `to` means; null for the whole run. A growing run is followed at its end. */
export function selected(from: number, to: number, shown: Bounds, newest: number, grows: boolean): StepWindow | null {
  const [low, high] = [Math.max(0, Math.floor(from)), Math.min(newest, Math.ceil(to))];
  const atEnd = high >= newest - NEAR_END * (shown.to - shown.from);
  return fitted({ from: low, to: atEnd ? newest : high }, newest, grows);
}

/** The window after a key or a button: half or twice as much, or a quarter of it to one side. */
export function moved(window: StepWindow | null, move: WindowMove, newest: number, grows: boolean): StepWindow | null {
  if (move === "whole") return null;
  const shown = boundsOf(window, newest);
  const width = shown.to - shown.from;
  const stride = Math.max(1, Math.round(width * STRIDE));
  const atEnd = shown.to >= newest;
  switch (move) {
    case "in":
      // At the end the newest stays in sight.
      return fitted({ from: shown.from + (atEnd ? 2 : 1) * stride, to: shown.to - (atEnd ? 0 : stride) }, newest, grows, window);
    case "out":
      return fitted({ from: shown.from - (atEnd ? 4 : 2) * stride, to: shown.to + 2 * stride }, newest, grows);
    case "earlier":
      return slid(shown, -Math.min(stride, shown.from), newest, grows, window);
    case "later":
      return slid(shown, Math.min(stride, Math.max(0, newest - shown.to)), newest, grows, window);
  }
}

function slid(shown: Bounds, by: number, newest: number, grows: boolean, window: StepWindow | null): StepWindow | null {
  if (window === null || by === 0) return window;
  return fitted({ from: shown.from + by, to: shown.to + by }, newest, grows);
}

/** Within the run; `fallback` where hardly a step would be left. */
function fitted({ from, to }: Bounds, newest: number, grows: boolean, fallback: StepWindow | null = null): StepWindow | null {
  const [low, high] = [Math.max(0, from), Math.min(newest, to)];
  if (high - low < LEAST) return fallback;
  if (low <= 1 && high >= newest) return null;
  return grows && high >= newest ? { last: newest - low + 1 } : { from: low, to: high };
}

/** `?from=100&to=200`, or `?last=500`. */
export function parseWindow(search: Record<string, unknown>): StepWindow | null {
  const [from, to, last] = ["from", "to", "last"].map((name) => whole(search[name]));
  if (last !== undefined && last >= LEAST) return { last };
  return from !== undefined && to !== undefined && to - from >= LEAST ? { from, to } : null;
}

function whole(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}
