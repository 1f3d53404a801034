import { idsOfSharedNames } from "@/lib/sharedNames";
import { shortId } from "@/lib/shortId";

/** Names by id, as plain text; items with the same name get the end of their id appended. */
export function uniqueNames(items: readonly { id: string; name: string }[]): Map<string, string> {
  const shared = idsOfSharedNames(items);
  return new Map(items.map(({ id, name }) => [id, shared.has(id) ? `${name} (${shortId(id)})` : name]));
}
