import type { ErrorBody, Problem } from "@/api/types";

/** The API refused: `detail` says what happened, why, and what to do. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly problems: readonly Problem[];

  constructor(status: number, body: Partial<ErrorBody>) {
    super(body.detail ?? body.title ?? `The server answered with status ${status} and no reason.`);
    this.name = "ApiError";
    this.status = status;
    this.code = body.code ?? "unknown";
    this.requestId = body.request_id ?? "";
    this.problems = body.errors ?? [];
  }
}

/** Nobody answered. */
export class ConnectionError extends Error {
  constructor() {
    super("The server does not answer. Check your network; this page tries again by itself.");
    this.name = "ConnectionError";
  }
}

/** What to tell a person of anything that was thrown. */
export function sentenceOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function parseErrorBody(text: string): Partial<ErrorBody> {
  try {
    const body: unknown = JSON.parse(text);
    return typeof body === "object" && body !== null ? body : {};
  } catch {
    return {};
  }
}
