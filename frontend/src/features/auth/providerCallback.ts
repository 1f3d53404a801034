import type { components } from "@/api/schema";

type ProviderCallback = components["schemas"]["ProviderCallback"];

/** What an identity provider added to the address of the sign-in page; null if it sent nobody here. */
export function readProviderCallback(search: string): ProviderCallback | null {
  const given = new URLSearchParams(search);
  const state = given.get("state");
  const code = given.get("code");
  const error = given.get("error");
  if (state === null || (code === null && error === null)) return null;
  return { state, authorization_code: code, error, issuer: given.get("iss") };
}

let arrived = location.pathname === "/sign-in" ? readProviderCallback(location.search) : null;
// The code is of use once, so it must stay neither in the history nor in an address that is copied.
if (arrived !== null) history.replaceState(history.state, "", location.pathname);

/** The callback with which this page was opened, once. */
export function takeProviderCallback(): ProviderCallback | null {
  const taken = arrived;
  arrived = null;
  return taken;
}
