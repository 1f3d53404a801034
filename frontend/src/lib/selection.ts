/** Which rows of a list are chosen. A press with Shift chooses all between the row pressed last and this one. */

export interface Selection {
  chosen: ReadonlySet<string>;
  /** The row pressed last. */
  from: string | null;
}

export const NOTHING_CHOSEN: Selection = { chosen: new Set(), from: null };

export function pressed({ chosen, from }: Selection, ids: readonly string[], id: string, range: boolean): Selection {
  const choose = !chosen.has(id);
  const start = from === null ? -1 : ids.indexOf(from);
  const here = ids.indexOf(id);
  const between = range && start >= 0 && here >= 0 ? ids.slice(Math.min(start, here), Math.max(start, here) + 1) : [id];
  const next = new Set(chosen);
  for (const one of between) {
    if (choose) next.add(one);
    else next.delete(one);
  }
  return { chosen: next, from: id };
}

/** All of the list, or none where all were chosen. */
export function pressedAll({ chosen }: Selection, ids: readonly string[]): Selection {
  return { chosen: ids.every((id) => chosen.has(id)) ? new Set() : new Set(ids), from: null };
}
