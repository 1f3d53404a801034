import createClient from "openapi-fetch";
import { ApiError, ConnectionError, parseErrorBody } from "@/api/errors";
import type { paths } from "@/api/schema";
import { connection } from "@/lib/connection";

/** The query of a list that is shown whole; no team has more items than this. Without `limit` the response is an array. */
export const WHOLE_LIST = { limit: 1_000 } as const;

const READ_TIMEOUT_MS = 30_000;

/** Statuses of a proxy whose API is down. */
const GATEWAY_DOWN = new Set([502, 504]);

/** `fetch` with three possible outcomes: a response, an ApiError or a ConnectionError. */
export async function request(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = (await takePrefetched(input)) ?? (await fetch(input, init));
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    connection.lost();
    throw new ConnectionError();
  }
  if (GATEWAY_DOWN.has(response.status)) {
    connection.lost();
    throw new ConnectionError();
  }
  connection.restored();
  if (!response.ok) throw new ApiError(response.status, parseErrorBody(await response.text()), response.headers.get("Retry-After"));
  return response;
}

/** A response that `prefetch.ts` requested. Any change, such as signing in, discards all of them. */
function takePrefetched(input: RequestInfo | URL): Promise<Response | undefined> | undefined {
  if (!(input instanceof Request)) return undefined;
  if (input.method !== "GET") window.prefetched?.clear();
  const response = window.prefetched?.get(input.url);
  window.prefetched?.delete(input.url);
  return response;
}

/** The typed client. Its types are generated from the API's OpenAPI document. */
export const api = createClient<paths>({ baseUrl: location.origin, fetch: (input) => request(input, withTimeout(input)) });

/** Reading must not wait forever on a dead connection. What a change does may take its time. */
function withTimeout({ method, signal }: Request): RequestInit {
  return method === "GET" ? { signal: AbortSignal.any([signal, AbortSignal.timeout(READ_TIMEOUT_MS)]) } : {};
}

/** The response body. `request` has already thrown if there is none. */
export function body<Data>(response: { data?: Data }): Data {
  return response.data as Data;
}
