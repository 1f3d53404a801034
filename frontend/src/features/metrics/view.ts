import { PHASES, type Phase } from "@/features/metrics/rankQueries";
import type { Axis } from "@/lib/series";
import { parseWindow, type StepWindow } from "@/lib/stepWindow";

/** What a person chose to see of the charts; it stands in the address. */
export interface ChartView {
  x: Axis;
  y: "linear" | "log";
  /** Weight of the moving average, 0 to 0.99. */
  smooth: number;
  /** The steps that are shown; null: all. */
  window: StepWindow | null;
}

/** A view as it stands in the address: only what differs from the standard, so that addresses stay short. */
export interface ViewSearch {
  x?: "tokens" | "time";
  y?: "log";
  smooth?: number;
  from?: number;
  to?: number;
  last?: number;
}

/** The phase whose time is shown by rank. */
export interface PhaseSearch {
  phase?: Phase;
}

export function parsePhase({ phase }: Record<string, unknown>): PhaseSearch {
  const found = PHASES.find((one) => one === phase);
  return found === undefined ? {} : { phase: found };
}

export function viewOf(search: ViewSearch): ChartView {
  const { x = "step", y = "linear", smooth = 0 } = search;
  return { x, y, smooth, window: parseWindow({ ...search }) };
}

export function searchOf({ x, y, smooth, window }: ChartView): ViewSearch {
  return {
    ...(x === "step" ? {} : { x }),
    ...(y === "linear" ? {} : { y }),
    ...(smooth === 0 ? {} : { smooth }),
    ...window,
  };
}

/** Every word of a view, unset. */
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
  const smooth = Number(search["smooth"] ?? 0);
  if (smooth > 0 && smooth < 1) view.smooth = smooth;
  return view;
}
