/** Accepts only addresses of this site, so that a sign-in link cannot redirect elsewhere. */
export function safeRedirect(next: string | undefined): string {
  return next !== undefined && /^\/(?![/\\])/.test(next) ? next : "/";
}
