/** Names by id; items with the same name get the end of their id appended. */

const ID_SUFFIX_LENGTH = 6;

export function uniqueNames(items: readonly { id: string; name: string }[]): Map<string, string> {
  const occurrences = new Map<string, number>();
  for (const { name } of items) occurrences.set(name, (occurrences.get(name) ?? 0) + 1);
  return new Map(items.map(({ id, name }) => [id, (occurrences.get(name) ?? 0) > 1 ? `${name} (…${id.slice(-ID_SUFFIX_LENGTH)})` : name]));
}
