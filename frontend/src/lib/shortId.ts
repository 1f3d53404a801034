const LENGTH = 5;

/** `vm77m`, the end of an id: enough for people to tell a few objects apart. */
export function shortId(id: string): string {
  return id.slice(-LENGTH);
}
