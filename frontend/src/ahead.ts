/**
 * Runs before the program of the pages has come, as a script of its own: asks for what the page will ask for first, so that
 * the answers come beside the program and not after it, and sets the colours.
 */
import { applyTheme, storedTheme } from "@/lib/theme";

for (const href of askedFirst(location.pathname, location.search)) {
  const link = document.createElement("link");
  Object.assign(link, { rel: "preload", as: "fetch", crossOrigin: "anonymous", href });
  document.head.append(link);
}
applyTheme(storedTheme());
// The browser opens this storage when it is first asked for, which takes its time; the router asks while all wait for it.
sessionStorage.getItem("");

/** What the page at an address asks for first. A wrong guess costs a request and does no harm. */
function askedFirst(path: string, search: string): string[] {
  const [team = "", page] = path.split("/").slice(1);
  if (team === "" || team === "sign-in" || team === "link") return [];
  const runs = `/api/v1/teams/${team}/runs?limit=100`;
  return ["/api/v1/me", ...(page === "runs" && path.endsWith("/runs") && search === "" ? [runs] : [])];
}
