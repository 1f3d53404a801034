/** Row selection of a list. Shift selects all rows between the last one toggled and this one. */

export interface Selection {
  selected: ReadonlySet<string>;
  /** The row toggled last. */
  anchor: string | null;
}

export const EMPTY_SELECTION: Selection = { selected: new Set(), anchor: null };

export function toggleSelection({ selected, anchor }: Selection, ids: readonly string[], id: string, range: boolean): Selection {
  const choose = !selected.has(id);
  const start = anchor === null ? -1 : ids.indexOf(anchor);
  const here = ids.indexOf(id);
  const between = range && start >= 0 && here >= 0 ? ids.slice(Math.min(start, here), Math.max(start, here) + 1) : [id];
  const next = new Set(selected);
  for (const one of between) {
    if (choose) next.add(one);
    else next.delete(one);
  }
  return { selected: next, anchor: id };
}

/** Selects all rows, or none if all were selected. */
export function toggleAll({ selected }: Selection, ids: readonly string[]): Selection {
  return { selected: ids.every((id) => selected.has(id)) ? new Set() : new Set(ids), anchor: null };
}
