import { shortId } from "@/lib/shortId";

/** The end of an id, after a name that others may have too and a space. */
export function ShortId({ id }: { id: string }) {
  return (
    <>
      {" "}
      <span className="font-mono text-small font-normal text-soft" title={id}>
        {shortId(id)}
      </span>
    </>
  );
}
