import { shortId } from "@/lib/shortId";

/** The end of the id of each item whose name is not unique among these. */
export function shortIdsOf(items: Iterable<{ id: string; name: string }>): Map<string, string> {
  const names = new Map([...items].map(({ id, name }) => [id, name]));
  const occurrences = new Map<string, number>();
  for (const name of names.values()) occurrences.set(name, (occurrences.get(name) ?? 0) + 1);
  return new Map([...names].flatMap(([id, name]) => ((occurrences.get(name) ?? 0) > 1 ? [[id, shortId(id)] as const] : [])));
}
