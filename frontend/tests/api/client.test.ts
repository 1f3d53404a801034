import { delay, http, HttpResponse } from "msw";
import { afterEach, expect, it, vi } from "vitest";
import { api } from "@/api/client";
import { ConnectionError } from "@/api/errors";
import { server } from "@tests/support/server";

afterEach(() => {
  vi.restoreAllMocks();
});

it("gives up reading if the server does not respond in time", async () => {
  const timeout = new AbortController();
  const after = vi.spyOn(AbortSignal, "timeout").mockReturnValue(timeout.signal);
  server.use(http.get("*/api/v1/me", () => delay("infinite")));
  const reading = api.GET("/api/v1/me");
  expect(after).toHaveBeenCalledWith(30_000);
  timeout.abort(new DOMException("The operation timed out.", "TimeoutError"));
  await expect(reading).rejects.toBeInstanceOf(ConnectionError);
});

it("does not limit the time of changes", async () => {
  const after = vi.spyOn(AbortSignal, "timeout");
  server.use(http.post("*/api/v1/auth/sign-out", () => new HttpResponse(null, { status: 204 })));
  await api.POST("/api/v1/auth/sign-out");
  expect(after).not.toHaveBeenCalled();
});
