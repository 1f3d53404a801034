/**
 * A separate script that runs before the main bundle has loaded. It requests the page's first data, so that the
 * responses arrive in parallel with the bundle, and sets the theme.
 */
import { applyTheme, storedTheme } from "@/lib/theme";

declare global {
  interface Window {
    /** Prefetched responses by address. Each is used once; undefined if the request failed. */
    prefetched?: Map<string, Promise<Response | undefined>>;
  }
}

window.prefetched = new Map(prefetchPaths(location.pathname, location.search).map((path) => [new URL(path, location.origin).href, prefetch(path)]));
applyTheme(storedTheme());
// The browser opens session storage on first access, which takes time; the router would do so on the critical path.
try {
  sessionStorage.getItem("");
} catch {
  // The pages work without it.
}

/** The first requests of the page at an address. A wrong guess costs one request. */
function prefetchPaths(path: string, search: string): string[] {
  const [team = "", page] = path.split("/").slice(1);
  if (team === "" || team === "sign-in" || team === "link") return [];
  const runs = `/api/v1/teams/${team}/runs?limit=100`;
  return ["/api/v1/me", ...(page === "runs" && path.endsWith("/runs") && search === "" ? [runs] : [])];
}

/** Failed requests are repeated by the page. */
async function prefetch(path: string): Promise<Response | undefined> {
  try {
    const response = await fetch(path);
    return response.ok ? response : undefined;
  } catch {
    return undefined;
  }
}
