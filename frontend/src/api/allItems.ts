interface Page<Item> {
  items: Item[];
  next_cursor?: string | null;
}

/** More pages than any list has, so that a faulty cursor cannot load forever. */
const MAX_PAGES = 100;

/** All items of a list that may be longer than a page. */
export async function allItems<Item>(loadPage: (cursor: string | undefined) => Promise<Page<Item>>): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | undefined;
  for (let count = 0; count < MAX_PAGES; count += 1) {
    const page = await loadPage(cursor);
    items.push(...page.items);
    cursor = page.next_cursor ?? undefined;
    if (cursor === undefined) break;
  }
  return items;
}
