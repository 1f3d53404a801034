/** Search in the command palette. */

export interface Searchable {
  /** Shown and searched. */
  label: string;
  /** Synonyms, searched but not shown. */
  keywords?: string;
}

/** Items that contain every typed word. Items that start with the first word come first, then the original order. */
export function searchCommands<Item extends Searchable>(items: readonly Item[], typed: string): Item[] {
  const terms = typed.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (terms.length === 0) return [...items];
  return items
    .flatMap((item, index) => {
      const text = `${item.label} ${item.keywords ?? ""}`.toLowerCase();
      if (!terms.every((word) => text.includes(word))) return [];
      return [{ item, rank: [rankOf(item.label.toLowerCase(), terms), index] as const }];
    })
    .sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1])
    .map(({ item }) => item);
}

function rankOf(text: string, [first = ""]: readonly string[]): number {
  if (text.startsWith(first)) return 0;
  return text.includes(` ${first}`) ? 1 : 2;
}
