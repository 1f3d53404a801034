/** Names of things by id; where several have one name, each bears so much of its id that it is told from the others. */

const TOLD_BY = 6;

export function namesApart(things: readonly { id: string; name: string }[]): Map<string, string> {
  const times = new Map<string, number>();
  for (const { name } of things) times.set(name, (times.get(name) ?? 0) + 1);
  return new Map(things.map(({ id, name }) => [id, (times.get(name) ?? 0) > 1 ? `${name} (…${id.slice(-TOLD_BY)})` : name]));
}
