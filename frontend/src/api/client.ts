import createClient from "openapi-fetch";
import { ApiError, ConnectionError, parseErrorBody } from "@/api/errors";
import type { paths } from "@/api/schema";
import { connection } from "@/lib/connection";

/** What a proxy says when the API behind it is away. */
const AWAY = new Set([502, 504]);

/** `fetch` that knows three outcomes only: an answer, an ApiError, a ConnectionError. */
export async function request(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = (await takenAhead(input)) ?? (await fetch(input, init));
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    connection.lost();
    throw new ConnectionError();
  }
  if (AWAY.has(response.status)) {
    connection.lost();
    throw new ConnectionError();
  }
  connection.found();
  if (!response.ok) throw new ApiError(response.status, parseErrorBody(await response.text()));
  return response;
}

/** An answer that `ahead.ts` has asked for. Who changes anything, such as who they are, leaves none of them to be taken. */
function takenAhead(input: RequestInfo | URL): Promise<Response | undefined> | undefined {
  if (!(input instanceof Request)) return undefined;
  if (input.method !== "GET") window.askedAhead?.clear();
  const answer = window.askedAhead?.get(input.url);
  window.askedAhead?.delete(input.url);
  return answer;
}

/** The typed client. Its types come from the API's own description. */
export const api = createClient<paths>({ baseUrl: location.origin, fetch: (input) => request(input) });

/** The answer's body. `request` has thrown before this where there is none. */
export function body<Data>(answer: { data?: Data }): Data {
  return answer.data as Data;
}
