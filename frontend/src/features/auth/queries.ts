import { queryOptions } from "@tanstack/react-query";
import { api, body } from "@/api/client";
import { ApiError } from "@/api/errors";
import type { components } from "@/api/schema";
import { runSignOutTasks } from "@/lib/signOutTasks";

type SignIn = components["schemas"]["SignIn"];
type OneTimeLink = components["schemas"]["OneTimeLink"];

export const meQuery = queryOptions({
  queryKey: ["me"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/me", { signal })),
  staleTime: 60_000,
});

export function linkQuery(token: string) {
  return queryOptions({
    queryKey: ["link", token],
    queryFn: async ({ signal }) =>
      body(await api.GET("/api/v1/auth/link/{token}", { params: { path: { token } }, signal })),
    staleTime: Infinity,
  });
}

export async function signIn(credentials: SignIn) {
  return body(await api.POST("/api/v1/auth/sign-in", { body: credentials }));
}

/** Whose name is null if the installation has no identity provider. */
export const signInProviderQuery = queryOptions({
  queryKey: ["sign-in provider"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/auth/oidc", { signal })),
  staleTime: Infinity,
});

/** The address at the provider, for the browser to open. */
export async function startProviderSignIn(next: string) {
  return body(await api.POST("/api/v1/auth/oidc/start", { body: { next } }));
}

export async function finishProviderSignIn(callback: components["schemas"]["ProviderCallback"]) {
  return body(await api.POST("/api/v1/auth/oidc/finish", { body: callback }));
}

export const identitiesQuery = queryOptions({
  queryKey: ["me", "identities"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/me/oidc", { signal })),
});

/** The address at the provider, for the browser to open. */
export async function startIdentityLink(link: components["schemas"]["IdentityLink"]) {
  return body(await api.POST("/api/v1/me/oidc", { body: link }));
}

export async function unlinkIdentity(identity: string): Promise<void> {
  await api.DELETE("/api/v1/me/oidc/{identity}", { params: { path: { identity } } });
}

export async function openLink(link: OneTimeLink) {
  return body(await api.POST("/api/v1/auth/link", { body: link }));
}

/** Gets the same response whether or not the address has an account. */
export async function mailSignInLink(email: string): Promise<void> {
  await api.POST("/api/v1/auth/mailed-link", { body: { email } });
}

/** Ends the session; it may have ended already. */
export async function signOut(): Promise<void> {
  runSignOutTasks();
  try {
    await api.POST("/api/v1/auth/sign-out");
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 401)) throw error;
  }
}

/** The person with their new name. */
export async function changeName(name: string) {
  return body(await api.PATCH("/api/v1/me", { body: { name } }));
}

export async function changePassword(change: components["schemas"]["PasswordChange"]): Promise<void> {
  await api.POST("/api/v1/me/password", { body: change });
}

export const keysQuery = queryOptions({
  queryKey: ["me", "keys"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/me/keys", { signal })),
});

export async function createKey(key: components["schemas"]["NewKey"]) {
  return body(await api.POST("/api/v1/me/keys", { body: key }));
}

export const sessionsQuery = queryOptions({
  queryKey: ["me", "sessions"],
  queryFn: async ({ signal }) => body(await api.GET("/api/v1/me/sessions", { signal })),
});

export async function endSession(session: string): Promise<void> {
  await api.DELETE("/api/v1/me/sessions/{session_id}", { params: { path: { session_id: session } } });
}

export async function deleteKey(key: string): Promise<void> {
  await api.DELETE("/api/v1/me/keys/{key}", { params: { path: { key } } });
}

export async function deleteAccount(password: string): Promise<void> {
  await api.POST("/api/v1/me/delete", { body: { current_password: password } });
}
