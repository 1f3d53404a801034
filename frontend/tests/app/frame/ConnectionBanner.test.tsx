import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, render } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { ConnectionBanner } from "@/app/frame/ConnectionBanner";
import { connection } from "@/lib/connection";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

function pass(milliseconds: number): void {
  act(() => {
    vi.advanceTimersByTime(milliseconds);
  });
}

it("reloads everything once the server responds, at most every five seconds if the connection is unstable", () => {
  const client = new QueryClient();
  const loaded = vi.spyOn(client, "invalidateQueries");
  render(
    <QueryClientProvider client={client}>
      <ConnectionBanner />
    </QueryClientProvider>,
  );
  const breakOff = () => {
    act(() => {
      connection.lost();
      connection.restored();
    });
    pass(0);
  };
  pass(10_000);
  expect(loaded).toHaveBeenCalledTimes(0);
  breakOff();
  expect(loaded).toHaveBeenCalledTimes(1);
  for (let again = 0; again < 4; again += 1) {
    pass(1_000);
    breakOff();
  }
  expect(loaded).toHaveBeenCalledTimes(1);
  pass(1_000);
  expect(loaded).toHaveBeenCalledTimes(2);
  pass(60_000);
  expect(loaded).toHaveBeenCalledTimes(2);
});
