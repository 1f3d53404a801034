/** The ids of the items whose name another one has too. */
export function idsOfSharedNames(items: Iterable<{ id: string; name: string }>): Set<string> {
  const names = new Map([...items].map(({ id, name }) => [id, name]));
  const occurrences = new Map<string, number>();
  for (const name of names.values()) occurrences.set(name, (occurrences.get(name) ?? 0) + 1);
  return new Set([...names].filter(([, name]) => (occurrences.get(name) ?? 0) > 1).map(([id]) => id));
}
