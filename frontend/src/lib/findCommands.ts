/** What a palette finds for what was typed. */

export interface Findable {
  /** What is shown and searched. */
  words: string;
  /** Searched as well: what else people call it. */
  also?: string;
}

/** Those that contain every word typed, best first: what begins with it before what contains it, else as they came. */
export function found<Item extends Findable>(items: readonly Item[], typed: string): Item[] {
  const wanted = typed.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (wanted.length === 0) return [...items];
  return items
    .flatMap((item, index) => {
      const text = `${item.words} ${item.also ?? ""}`.toLowerCase();
      if (!wanted.every((word) => text.includes(word))) return [];
      return [{ item, rank: [rankOf(item.words.toLowerCase(), wanted), index] as const }];
    })
    .sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1])
    .map(({ item }) => item);
}

function rankOf(text: string, [first = ""]: readonly string[]): number {
  if (text.startsWith(first)) return 0;
  return text.includes(` ${first}`) ? 1 : 2;
}
