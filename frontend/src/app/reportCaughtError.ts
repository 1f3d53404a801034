import { ApiError, ConnectionError } from "@/api/errors";

/** Logs an error that an error page shows, except answers that the page explains: nothing is wrong with its code. */
export function reportCaughtError(error: unknown): void {
  if (error instanceof ConnectionError || (error instanceof ApiError && error.status < 500)) return;
  console.error(error);
}
