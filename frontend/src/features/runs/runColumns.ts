/** The columns of the runs table: which there are, which a person wants, and how the address says it. */
import type { Run } from "@/api/types";
import type { RunSort } from "@/features/runs/runFilter";
import { count, decimal, percent, rate, short } from "@/lib/format";

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
  "model",
  "precision",
  "slots",
] as const;

export type RunColumn = (typeof RUN_COLUMNS)[number];

export const FIRST_COLUMNS: readonly RunColumn[] = ["mfu", "loss", "spark", "tokens_per_second", "time", "by", "tags"];

interface ColumnLook {
  /** In the table's head. */
  head: string;
  /** In the menu, where the head is too short. */
  word?: string;
  px: number;
  right?: true;
  /** A row without numbers spends the room of these on its sentence. */
  number?: true;
  sort?: RunSort;
  /** Text of the cells that are nothing but text. */
  text?: (run: Run) => string;
}

const last = (name: string, say: (value: number) => string) => (run: Run) => {
  const value = run.summary.values[name];
  return value === undefined ? "–" : say(value);
};

export const COLUMN_LOOKS: Record<RunColumn, ColumnLook> = {
  tags: { head: "tags", px: 150 },
  mfu: { head: "MFU", px: 76, right: true, number: true, sort: "mfu", text: last("mfu", (value) => `${percent(value)} %`) },
  loss: { head: "loss", px: 76, right: true, number: true, sort: "loss", text: last("loss", decimal) },
  spark: { head: "", word: "loss so far", px: 96, number: true },
  tokens_per_second: {
    head: "tokens/s",
    px: 92,
    right: true,
    number: true,
    sort: "tokens_per_second",
    text: last("tokens_per_second", rate),
  },
  step: { head: "step", px: 92, right: true, number: true, sort: "step", text: ({ summary }) => count(summary.step) },
  validation_loss: {
    head: "validation",
    word: "validation loss",
    px: 96,
    right: true,
    number: true,
    text: last("validation_loss", decimal),
  },
  grad_norm: { head: "grad norm", px: 96, right: true, number: true, text: last("grad_norm", decimal) },
  time: { head: "time", px: 128, right: true },
  by: { head: "by", px: 96, text: ({ created_by }) => created_by ?? "–" },
  created: { head: "created", px: 116, sort: "created" },
  nodes: { head: "nodes", px: 120, text: ({ nodes }) => nodes.join(", ") || "–" },
  learning_rate: {
    head: "rate",
    word: "learning rate",
    px: 84,
    right: true,
    text: ({ spec }) => String(spec.optimizer.learning_rate),
  },
  batch: { head: "batch", word: "batch, sequences a step", px: 76, right: true, text: ({ spec }) => count(spec.batch.global_sequences) },
  model: { head: "model", word: "model, layers × width", px: 104, text: ({ spec }) => `${spec.model.layers} × ${short(spec.model.width)}` },
  precision: { head: "precision", px: 92, text: ({ spec }) => spec.precision.kind },
  slots: {
    head: "slots",
    px: 68,
    right: true,
    text: ({ spec }) => count(spec.resources.nodes * spec.resources.slots_per_node),
  },
};

/** Selection, state and a name that can be read come on top of the columns. */
const BESIDE_PX = 40 + 120 + 124;

export function widthOf(columns: readonly RunColumn[]): number {
  return columns.reduce((sum, one) => sum + COLUMN_LOOKS[one].px, BESIDE_PX);
}

/** The column of tags takes no room while nothing listed has one. */
export function shownColumns(columns: readonly RunColumn[], runs: readonly Run[]): RunColumn[] {
  const tagged = runs.some(({ tags }) => tags.length > 0);
  return columns.filter((one) => one !== "tags" || tagged);
}

/** `loss,time` as columns in their own order; undefined where it names none. */
export function parseColumns(text: unknown): RunColumn[] | undefined {
  if (typeof text !== "string") return undefined;
  const named = text.split(",");
  const columns = RUN_COLUMNS.filter((one) => named.includes(one));
  return columns.length === 0 ? undefined : columns;
}

export function toggledColumn(columns: readonly RunColumn[], column: RunColumn): RunColumn[] {
  return RUN_COLUMNS.filter((one) => (one === column) !== columns.includes(one));
}

/** What this person chose on this machine before. */
export function storedColumns(person: string): RunColumn[] | undefined {
  return parseColumns(localStorage.getItem(keyOf(person)));
}

export function storeColumns(person: string, columns: readonly RunColumn[]): void {
  localStorage.setItem(keyOf(person), columns.join(","));
}

function keyOf(person: string): string {
  return `trainwright.columns.${person}`;
}
