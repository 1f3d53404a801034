/** The end of an id behind a name that is not unique; nothing if there is none. */
export function ShortId({ id }: { id: string | undefined }) {
  if (id === undefined) return null;
  return (
    <>
      {" "}
      <span className="font-mono text-small font-normal text-soft">{id}</span>
    </>
  );
}
