/**
 * Runs before the program of the pages has come, as a script of its own: asks for what the page will ask for first, so that
 * the answers come beside the program and not after it, and sets the colours.
 */
import { applyTheme, storedTheme } from "@/lib/theme";

declare global {
  interface Window {
    /** What was asked for ahead, by address: each answer is taken once, and undefined where there was none to use. */
    askedAhead?: Map<string, Promise<Response | undefined>>;
  }
}

window.askedAhead = new Map(askedFirst(location.pathname, location.search).map((path) => [new URL(path, location.origin).href, ask(path)]));
applyTheme(storedTheme());
// The browser opens this storage when it is first asked for, which takes its time; the router asks while all wait for it.
try {
  sessionStorage.getItem("");
} catch {
  // The pages do without it.
}

/** What the page at an address asks for first. A wrong guess costs a request. */
function askedFirst(path: string, search: string): string[] {
  const [team = "", page] = path.split("/").slice(1);
  if (team === "" || team === "sign-in" || team === "link") return [];
  const runs = `/api/v1/teams/${team}/runs?limit=100`;
  return ["/api/v1/me", ...(page === "runs" && path.endsWith("/runs") && search === "" ? [runs] : [])];
}

/** Whatever is not an answer as it should be is asked for again by who needs it. */
async function ask(path: string): Promise<Response | undefined> {
  try {
    const answer = await fetch(path);
    return answer.ok ? answer : undefined;
  } catch {
    return undefined;
  }
}
