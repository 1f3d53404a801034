import type { Run } from "@/api/types";

const LENGTH = 5;

/** The end of the id of each run whose name is not unique among these. */
export function shortIdsOf(runs: readonly Run[]): Map<string, string> {
  const occurrences = new Map<string, number>();
  for (const { name } of runs) occurrences.set(name, (occurrences.get(name) ?? 0) + 1);
  return new Map(runs.flatMap(({ id, name }) => ((occurrences.get(name) ?? 0) > 1 ? [[id, id.slice(-LENGTH)] as const] : [])));
}
