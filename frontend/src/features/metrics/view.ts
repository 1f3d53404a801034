import type { Axis } from "@/lib/series";

/** What a person chose to see of the charts; it stands in the address. */
export interface ChartView {
  x: Axis;
  y: "linear" | "log";
  /** Weight of the moving average, 0 to 0.99. */
  smooth: number;
}

export const STANDARD_VIEW: ChartView = { x: "step", y: "linear", smooth: 0 };

/** Only what differs from the standard, so that addresses stay short. */
export function searchOf({ x, y, smooth }: ChartView): Partial<ChartView> {
  return { ...(x === "step" ? {} : { x }), ...(y === "linear" ? {} : { y }), ...(smooth === 0 ? {} : { smooth }) };
}

export function parseView(search: Record<string, unknown>): Partial<ChartView> {
  const view: Partial<ChartView> = {};
  if (search["x"] === "tokens" || search["x"] === "time") view.x = search["x"];
  if (search["y"] === "log") view.y = "log";
  const smooth = Number(search["smooth"] ?? 0);
  if (smooth > 0 && smooth < 1) view.smooth = smooth;
  return view;
}
