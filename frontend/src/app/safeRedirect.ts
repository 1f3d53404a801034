/** Accepts only addresses of this site, so that a sign-in link cannot redirect elsewhere. */
export function safeRedirect(next: string | undefined): string {
  if (next?.startsWith("/") !== true || !URL.canParse(next, location.origin)) return "/";
  // Read as the browser reads it, which skips tabs and dots: `/\t/example.org` and `/.//example.org` are other sites.
  const { origin, pathname, search, hash } = new URL(next, location.origin);
  return origin === location.origin && !pathname.startsWith("//") ? pathname + search + hash : "/";
}
