import { NotFoundNote } from "@/components/NotFoundNote";

/** Shown for an address without a page. */
export function NotFound() {
  return <NotFoundNote titled>The address may be wrong, or the item was deleted or belongs to another team.</NotFoundNote>;
}
