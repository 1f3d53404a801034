/** The columns of the runs table, the user's choice of them, and their form in the address. */
import type { Run } from "@/api/types";
import type { RunSort } from "@/features/runs/list/runFilter";
import { count, decimal, exactNumber, percent, rate, short } from "@/lib/format";

export const RUN_COLUMNS = [
  "mfu",
  "loss",
  "spark",
  "tokens_per_second",
  "step",
  "validation_loss",
  "grad_norm",
  "time",
  "by",
  "tags",
  "created",
  "nodes",
  "learning_rate",
  "batch",
  "dataset",
  "model",
  "precision",
  "slots",
] as const;

export type RunColumn = (typeof RUN_COLUMNS)[number];

export const DEFAULT_COLUMNS: readonly RunColumn[] = ["mfu", "loss", "spark", "tokens_per_second", "time", "by", "tags", "dataset", "model", "precision"];

interface ColumnStyle {
  /** Label in the table's header. */
  label: string;
  /** Label in the menu, if that in the header is too short. */
  menuLabel?: string;
  widthPx: number;
  /** How much wider the column becomes if there is room. */
  growPx?: number;
  alignRight?: true;
  /** A row without metrics shows its sentence across these columns. */
  isMetric?: true;
  sort?: RunSort;
  /** The text of plain-text cells. */
  text?: (run: Run) => string;
}

const lastMetric = (name: string, format: (value: number) => string) => (run: Run) => {
  const value = run.summary.values[name];
  return value === undefined ? "–" : format(value);
};

export const COLUMN_STYLES: Record<RunColumn, ColumnStyle> = {
  tags: { label: "tags", widthPx: 112, growPx: 120 },
  dataset: { label: "dataset", widthPx: 104, growPx: 96 },
  mfu: { label: "MFU", widthPx: 72, alignRight: true, isMetric: true, sort: "mfu", text: lastMetric("mfu", (value) => `${percent(value)} %`) },
  loss: { label: "loss", widthPx: 72, alignRight: true, isMetric: true, sort: "loss", text: lastMetric("loss", decimal) },
  spark: { label: "loss so far", widthPx: 96, isMetric: true },
  tokens_per_second: {
    label: "tokens/s",
    widthPx: 88,
    alignRight: true,
    isMetric: true,
    sort: "tokens_per_second",
    text: lastMetric("tokens_per_second", rate),
  },
  step: { label: "step", widthPx: 92, alignRight: true, isMetric: true, sort: "step", text: ({ summary }) => count(summary.step) },
  validation_loss: {
    label: "validation",
    menuLabel: "validation loss",
    widthPx: 96,
    alignRight: true,
    isMetric: true,
    text: lastMetric("validation_loss", decimal),
  },
  grad_norm: { label: "grad norm", widthPx: 96, alignRight: true, isMetric: true, text: lastMetric("grad_norm", decimal) },
  time: { label: "time", widthPx: 132, alignRight: true },
  by: { label: "by", widthPx: 76, growPx: 88, text: ({ created_by }) => created_by ?? "–" },
  created: { label: "created", widthPx: 116, sort: "created" },
  nodes: { label: "nodes", widthPx: 120, text: ({ nodes }) => nodes.join(", ") || "–" },
  learning_rate: {
    label: "learning rate",
    widthPx: 108,
    alignRight: true,
    text: ({ spec }) => exactNumber(spec.optimizer.learning_rate),
  },
  batch: { label: "batch", menuLabel: "batch, sequences a step", widthPx: 76, alignRight: true, text: ({ spec }) => count(spec.batch.global_sequences) },
  model: { label: "model", menuLabel: "model, layers × width", widthPx: 84, growPx: 16, text: ({ spec }) => `${spec.model.layers} × ${short(spec.model.width)}` },
  precision: { label: "precision", widthPx: 80, text: ({ spec }) => spec.precision.kind },
  slots: {
    label: "slots",
    widthPx: 68,
    alignRight: true,
    text: ({ spec }) => count(spec.resources.nodes * spec.resources.slots_per_node),
  },
};

/** Checkbox, state and a readable name are always there. */
const FIXED_COLUMNS_PX = 40 + 120 + 152;

export function tableWidthPx(columns: readonly RunColumn[]): number {
  return columns.reduce((sum, column) => sum + COLUMN_STYLES[column].widthPx, FIXED_COLUMNS_PX);
}

/** The run's name takes the room that all columns leave, except for an eighth that each other column of names takes. */
export function columnWidth(column: RunColumn, columns: readonly RunColumn[]): string {
  const { widthPx, growPx = 0 } = COLUMN_STYLES[column];
  return growPx === 0 ? `${widthPx}px` : `calc(${widthPx}px + clamp(0px, (100cqw - ${tableWidthPx(columns)}px) / 8, ${growPx}px))`;
}

/** Hides the tags column while no listed run has a tag. */
export function visibleColumns(columns: readonly RunColumn[], runs: readonly Run[]): RunColumn[] {
  const tagged = runs.some(({ tags }) => tags.length > 0);
  return columns.filter((column) => column !== "tags" || tagged);
}

/** Parses `loss,time` into columns in their standard order; undefined if none is known. */
export function parseColumns(text: unknown): RunColumn[] | undefined {
  if (typeof text !== "string") return undefined;
  const named = text.split(",");
  const columns = RUN_COLUMNS.filter((column) => named.includes(column));
  return columns.length === 0 ? undefined : columns;
}

export function toggleColumn(columns: readonly RunColumn[], column: RunColumn): RunColumn[] {
  return RUN_COLUMNS.filter((one) => (one === column) !== columns.includes(one));
}

/** What the user last chose in this browser. */
export function storedColumns(person: string): RunColumn[] | undefined {
  return parseColumns(localStorage.getItem(keyOf(person)));
}

export function storeColumns(person: string, columns: readonly RunColumn[]): void {
  localStorage.setItem(keyOf(person), columns.join(","));
}

function keyOf(person: string): string {
  return `trainwright.columns.${person}`;
}
