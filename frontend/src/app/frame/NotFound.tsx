import { NotFoundNote, PAGE_NOT_FOUND } from "@/components/NotFoundNote";

/** Shown for an address without a page. */
export function NotFound() {
  return <NotFoundNote title={PAGE_NOT_FOUND}>The address may be wrong, or the item was deleted or belongs to another team.</NotFoundNote>;
}
