import type { ChartView } from "@/features/metrics/charts/chartView";
import { parseView, searchOf, viewOf, type ViewSearch } from "@/features/metrics/charts/chartView";

/** The comparison as in the address: ids and names separated by commas, so that it stays readable. */
export interface CompareSearch extends ViewSearch {
  runs?: string;
  /** Series to draw. */
  series?: string;
  /** Ids of hidden runs. */
  hide?: string;
}

export const MAX_COMPARED = 100;
export const MAX_SERIES = 20;

/** The default series. */
export const DEFAULT_SERIES = ["loss", "validation_loss", "grad_norm", "tokens_per_second"];

export function parseCompare(search: Record<string, unknown>): CompareSearch {
  return { ...parseView(search), ...textParam("runs", search["runs"]), ...textParam("series", search["series"]), ...textParam("hide", search["hide"]) };
}

function textParam(name: "runs" | "series" | "hide", value: unknown): Partial<Record<typeof name, string>> {
  const text = Array.isArray(value) ? value.filter((one) => typeof one === "string").join(",") : value;
  return typeof text === "string" && text !== "" ? { [name]: text } : {};
}

export interface CompareView {
  /** Ids in the order of the address, which gives each run its colour; at most `MAX_COMPARED`. */
  runs: string[];
  /** Number of further runs in the address. */
  leftOut: number;
  series: string[];
  hidden: ReadonlySet<string>;
  chart: ChartView;
}

/** Updates part of the current view. */
export type ChangeView = (next: (old: CompareView) => Partial<CompareView>) => void;

export function compareViewOf(search: CompareSearch): CompareView {
  const runs = splitList(search.runs);
  return {
    runs: runs.slice(0, MAX_COMPARED),
    leftOut: Math.max(0, runs.length - MAX_COMPARED),
    series: search.series === undefined ? DEFAULT_SERIES : splitList(search.series).slice(0, MAX_SERIES),
    hidden: new Set(splitList(search.hide)),
    chart: viewOf(search),
  };
}

/**
 * The address of a view. `chart.window` belongs to the axis it was selected on, because a range of tokens is not a
 * range of steps.
 */
export function searchOfCompare({ runs, series, hidden, chart }: CompareView): CompareSearch {
  const standard = series.join(",") === DEFAULT_SERIES.join(",");
  const hide = runs.filter((run) => hidden.has(run)).join(",");
  return {
    ...searchOf(chart),
    ...(runs.length === 0 ? {} : { runs: runs.join(",") }),
    ...(standard ? {} : { series: series.join(",") }),
    ...(hide === "" ? {} : { hide }),
  };
}

function splitList(text = ""): string[] {
  return [...new Set(text.split(",").filter((value) => value !== ""))];
}

const COLORS = 8;

/**
 * The colour of the nth run and whether its line is dashed: there are eight colours. With more runs than colours
 * and dashes can distinguish, no line is dashed, because dashes are slow to draw.
 */
export function lineStyle(index: number, runs: number): { color: number; dash: boolean } {
  return { color: (index % COLORS) + 1, dash: index >= COLORS && runs <= 2 * COLORS };
}
