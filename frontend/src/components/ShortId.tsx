import { shortId } from "@/lib/shortId";

/** The end of an id beside a name that others may have too. */
export function ShortId({ id }: { id: string }) {
  return (
    <span className="font-mono text-small font-normal text-soft" title={id}>
      {shortId(id)}
    </span>
  );
}
