import { expect, it, vi } from "vitest";
import { ApiError, ConnectionError } from "@/api/errors";
import { reportCaughtError } from "@/app/reportCaughtError";

it.each<[error: unknown, times: number]>([
  [new ApiError(404, {}), 0],
  [new ConnectionError(), 0],
  [new ApiError(500, {}), 1],
  [new TypeError("x is undefined"), 1],
])("logs errors that nobody expects (%#)", (error, times) => {
  const log = vi.spyOn(console, "error").mockImplementation(() => undefined);
  reportCaughtError(error);
  expect(log).toHaveBeenCalledTimes(times);
  log.mockRestore();
});
