/** Runs as comma-separated values (RFC 4180), with full precision. */
import type { Run } from "@/api/types";
import { csvText, type CsvValue } from "@/lib/csv";

const METRICS = ["loss", "validation_loss", "mfu", "tokens_per_second", "grad_norm"] as const;

const COLUMNS: readonly [string, (run: Run, datasets: ReadonlyMap<string, string>) => CsvValue][] = [
  ["id", ({ id }) => id],
  ["name", ({ name }) => name],
  ["state", ({ state }) => state],
  ["dataset", ({ spec }, datasets) => datasets.get(spec.data.dataset) ?? spec.data.dataset],
  ["layers", ({ spec }) => spec.model.layers],
  ["width", ({ spec }) => spec.model.width],
  ["precision", ({ spec }) => spec.precision.kind],
  ["learning_rate", ({ spec }) => spec.optimizer.learning_rate],
  ["global_sequences", ({ spec }) => spec.batch.global_sequences],
  ["slots", ({ spec }) => spec.resources.nodes * spec.resources.slots_per_node],
  ["step", ({ summary }) => summary.step],
  ["steps", ({ spec }) => spec.schedule.steps],
  ...METRICS.map((name): [string, (run: Run) => CsvValue] => [name, ({ summary }) => summary.values[name]]),
  ["tags", ({ tags }) => tags.join(" ")],
  ["created_by", ({ created_by }) => created_by],
  ["created", ({ created }) => created],
  ["started", ({ started }) => started],
  ["ended", ({ ended }) => ended],
];

export function runsCsv(runs: readonly Run[], datasets: ReadonlyMap<string, string>): string {
  return csvText([COLUMNS.map(([name]) => name), ...runs.map((run) => COLUMNS.map(([, value]) => value(run, datasets)))]);
}
