/** Groups of the runs table. */
import type { RunGroup, RunState } from "@/api/types";
import type { RunFilter, RunGrouping } from "@/features/runs/list/runFilter";
import { decimal, plural } from "@/lib/format";
import { stateStyle } from "@/lib/runs/stateStyle";

export const GROUPING_LABELS: Record<RunGrouping, string> = { tag: "tag", dataset: "dataset", model: "model", state: "state" };

export interface GroupRow {
  /** Id of the group in the address. */
  id: string;
  label: string;
  runs: number;
  live: number;
  bestLoss: number | null;
  /** Selects the group's runs among those of the table's filter. */
  filter: RunFilter;
}

const NO_TAG = "";

/** The rows of a grouped table. States that share a label are one row. */
export function groupRows(groups: readonly RunGroup[], grouping: RunGrouping, filter: RunFilter): GroupRow[] {
  const rows = new Map<string, GroupRow>();
  for (const { key, name, runs, live, best_loss: bestLoss = null } of groups) {
    const label = labelOf(grouping, key, name);
    const before = rows.get(grouping === "state" ? label : key);
    const losses = [before?.bestLoss, bestLoss].filter((loss) => typeof loss === "number");
    rows.set(grouping === "state" ? label : key, {
      id: before?.id ?? key,
      label,
      runs: runs + (before?.runs ?? 0),
      live: live + (before?.live ?? 0),
      bestLoss: losses.length === 0 ? null : Math.min(...losses),
      filter: filterOf(grouping, key, filter, before?.filter.state),
    });
  }
  return [...rows.values()];
}

/** `12 runs, 2 unfinished, best loss 2.810` */
export function groupText({ runs, live, bestLoss }: GroupRow): string {
  return [plural(runs, "run"), live > 0 ? `${live} unfinished` : [], bestLoss === null ? [] : `best loss ${decimal(bestLoss)}`].flat().join(", ");
}

function labelOf(grouping: RunGrouping, key: string, name: string): string {
  switch (grouping) {
    case "tag":
      return key === NO_TAG ? "without a tag" : key;
    case "dataset":
      return name === key ? `deleted dataset ${key}` : name;
    case "model":
      return key.replace("x", " × ");
    case "state":
      return stateStyle[key as RunState].label;
  }
}

function filterOf(grouping: RunGrouping, key: string, filter: RunFilter, states: readonly RunState[] = []): RunFilter {
  switch (grouping) {
    case "tag":
      return key === NO_TAG ? { untagged: true } : { tag: [...new Set([...(filter.tag ?? []), key])] };
    case "dataset":
      return { dataset: key };
    case "model":
      return { model: key };
    case "state":
      return { state: [...states, key as RunState] };
  }
}
