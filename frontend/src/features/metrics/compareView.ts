import type { ChartView } from "@/features/metrics/view";
import { parseView, searchOf, viewOf, type ViewSearch } from "@/features/metrics/view";

/** What a comparison shows, as it stands in the address: ids and names joined by commas, so that a person can read it. */
export interface CompareSearch extends ViewSearch {
  runs?: string;
  /** Series that are drawn. */
  series?: string;
  /** Ids whose lines are left out for now. */
  hide?: string;
}

export const MOST_COMPARED = 100;
export const MOST_SERIES = 20;

/** The series that are drawn unless the address says others. */
export const STANDARD_SERIES = ["loss", "validation_loss", "grad_norm", "tokens_per_second"];

export function parseCompare(search: Record<string, unknown>): CompareSearch {
  return { ...parseView(search), ...words("runs", search["runs"]), ...words("series", search["series"]), ...words("hide", search["hide"]) };
}

function words(name: "runs" | "series" | "hide", value: unknown): Partial<Record<typeof name, string>> {
  const text = Array.isArray(value) ? value.filter((one) => typeof one === "string").join(",") : value;
  return typeof text === "string" && text !== "" ? { [name]: text } : {};
}

export interface CompareView {
  /** Ids in the order of the address, which gives each its colour; at most `MOST_COMPARED`. */
  runs: string[];
  /** How many more the address names. */
  leftOut: number;
  series: string[];
  hidden: ReadonlySet<string>;
  chart: ChartView;
}

/** Changes parts of the view as it is then, given all of it. */
export type ChangeView = (next: (old: CompareView) => Partial<CompareView>) => void;

export function compareViewOf(search: CompareSearch): CompareView {
  const runs = listed(search.runs);
  return {
    runs: runs.slice(0, MOST_COMPARED),
    leftOut: Math.max(0, runs.length - MOST_COMPARED),
    series: search.series === undefined ? STANDARD_SERIES : listed(search.series).slice(0, MOST_SERIES),
    hidden: new Set(listed(search.hide)),
    chart: viewOf(search),
  };
}

/** The address of a view. A stretch of tokens is none of steps: `chart.window` goes with the axis it was chosen on. */
export function searchOfCompare({ runs, series, hidden, chart }: CompareView): CompareSearch {
  const standard = series.join(",") === STANDARD_SERIES.join(",");
  const hide = runs.filter((run) => hidden.has(run)).join(",");
  return {
    ...searchOf(chart),
    ...(runs.length === 0 ? {} : { runs: runs.join(",") }),
    ...(standard ? {} : { series: series.join(",") }),
    ...(hide === "" ? {} : { hide }),
  };
}

function listed(text = ""): string[] {
  return [...new Set(text.split(",").filter((one) => one !== ""))];
}

const COLORS = 8;

/**
 * The colour of the nth run of a comparison, and whether its line is dashed: there are eight colours. Of more runs than
 * colours and dashes tell apart none is dashed, which would take most of the time that drawing takes.
 */
export function lineLook(index: number, runs: number): { color: number; dash: boolean } {
  return { color: (index % COLORS) + 1, dash: index >= COLORS && runs <= 2 * COLORS };
}
