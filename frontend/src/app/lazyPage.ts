import { lazyRouteComponent } from "@tanstack/react-router";
import { api } from "@/api/client";
import { ConnectionError } from "@/api/errors";

type Load<Module> = () => Promise<Module>;

/**
 * A page whose code is loaded when it is opened. If the code is missing, the router reloads the page, which is right after
 * a new version was installed; without a server that would lead to the browser's own error page.
 */
export function lazyPage<Module extends Record<string, unknown>, Name extends keyof Module & string>(load: Load<Module>, name: Name) {
  return lazyRouteComponent(() => loadPage(load), name);
}

/** Raises: ConnectionError if the server does not respond; the error of ``load`` if it does. */
export async function loadPage<Module>(load: Load<Module>): Promise<Module> {
  try {
    return await load();
  } catch (error) {
    try {
      await api.GET("/api/v1/health");
    } catch (reason) {
      if (reason instanceof ConnectionError) throw reason;
    }
    throw error;
  }
}
