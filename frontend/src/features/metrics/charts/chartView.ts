import { STEP_PARTS, type StepPart } from "@/features/metrics/timing/rankTimes";
import type { Axis } from "@/lib/charts/series";
import { parseWindow, type StepWindow } from "@/lib/charts/stepWindow";

/** The chart settings, as in the address. */
export interface ChartView {
  x: Axis;
  y: "linear" | "log";
  /** Weight of the moving average, 0 to 0.99. */
  smooth: number;
  /** The visible steps; null: all. */
  window: StepWindow | null;
}

/** Chart settings in the address: only those that differ from the defaults, to keep addresses short. */
export interface ViewSearch {
  x?: "tokens" | "time";
  y?: "log";
  smooth?: number;
  from?: number;
  to?: number;
  last?: number;
}

/** The part of the step that the rank heat map shows. */
export interface StepPartSearch {
  phase?: StepPart;
}

export function parseStepPart({ phase }: Record<string, unknown>): StepPartSearch {
  const found = STEP_PARTS.find((part) => part === phase);
  return found === undefined ? {} : { phase: found };
}

/** The smoothing of a run's and of compared curves unless another one is chosen, so that a curve looks alike on both pages. */
const DEFAULT_SMOOTHING = 0.6;

export function viewOf(search: ViewSearch): ChartView {
  const { x = "step", y = "linear", smooth = DEFAULT_SMOOTHING } = search;
  return { x, y, smooth, window: parseWindow({ ...search }) };
}

export function searchOf({ x, y, smooth, window }: ChartView): ViewSearch {
  return {
    ...(x === "step" ? {} : { x }),
    ...(y === "linear" ? {} : { y }),
    ...(smooth === DEFAULT_SMOOTHING ? {} : { smooth }),
    ...window,
  };
}

/** Every setting, unset. */
export const clearedView: Record<keyof ViewSearch, undefined> = {
  x: undefined,
  y: undefined,
  smooth: undefined,
  from: undefined,
  to: undefined,
  last: undefined,
};

export function parseView(search: Record<string, unknown>): ViewSearch {
  const view: ViewSearch = { ...parseWindow(search) };
  if (search["x"] === "tokens" || search["x"] === "time") view.x = search["x"];
  if (search["y"] === "log") view.y = "log";
  const smooth = Number(search["smooth"] ?? NaN);
  if (smooth >= 0 && smooth < 1) view.smooth = smooth;
  return view;
}
