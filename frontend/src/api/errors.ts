import type { ErrorBody, Problem } from "@/api/types";

/** The API returned an error: `detail` says what happened, why, and what to do. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly problems: readonly Problem[];
  /** How long to wait before the next try; 0 if the API does not say. */
  readonly retryAfterMs: number;

  constructor(status: number, body: Partial<ErrorBody>, retryAfter: string | null = null) {
    super(body.detail ?? body.title ?? `The server responded with status ${status} and no reason.`);
    this.name = "ApiError";
    this.status = status;
    this.code = body.code ?? "unknown";
    this.requestId = body.request_id ?? "";
    this.problems = body.errors ?? [];
    this.retryAfterMs = 1_000 * (Number(retryAfter) || 0);
  }
}

/** The server did not respond. */
export class ConnectionError extends Error {
  constructor() {
    super("The server does not respond. Check your network; this page retries automatically.");
    this.name = "ConnectionError";
  }
}

/** The message to show for anything that was thrown. */
export function errorMessage(error: unknown): string {
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

/** What the API says about a field of the request, or about a part of it. */
export function problemAt(error: unknown, field: string): string | undefined {
  return error instanceof ApiError ? error.problems.find((problem) => isAt(problem, field))?.message : undefined;
}

/** The error, unless the form shows all of it at these fields. */
export function withoutProblemsAt(error: unknown, fields: readonly string[]): unknown {
  const isShown = error instanceof ApiError && error.problems.length > 0 && error.problems.every((problem) => fields.some((field) => isAt(problem, field)));
  return isShown ? null : error;
}

function isAt(problem: Problem, field: string): boolean {
  return problem.field === field || problem.field.startsWith(`${field}.`);
}
