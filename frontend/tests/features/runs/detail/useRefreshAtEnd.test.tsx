import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { ReactNode } from "react";
import { useRefreshAtEnd } from "@/features/runs/detail/useRefreshAtEnd";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Shows a run, and counts how often its logs are loaded. */
function show(live: boolean) {
  const load = vi.fn(() => Promise.resolve("log"));
  const client = new QueryClient();
  const wrapper = ({ children }: { children: ReactNode }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>;
  const useRun = (props: { live: boolean }) => {
    useQuery({ queryKey: ["run", "lab", "run_1", "logs"], queryFn: load });
    useRefreshAtEnd("lab", "run_1", props.live);
  };
  return { load, ...renderHook(useRun, { wrapper, initialProps: { live } }) };
}

function pass(milliseconds: number): Promise<unknown> {
  return act(() => vi.advanceTimersByTimeAsync(milliseconds));
}

it("loads a run's data when it ends, and once more for late lines", async () => {
  const { load, rerender } = show(true);
  await pass(60_000);
  expect(load).toHaveBeenCalledTimes(1);
  rerender({ live: false });
  await pass(100);
  expect(load).toHaveBeenCalledTimes(2);
  await pass(60_000);
  expect(load).toHaveBeenCalledTimes(3);
});

it("loads nothing again for a run that had ended before", async () => {
  const { load } = show(false);
  await pass(60_000);
  expect(load).toHaveBeenCalledTimes(1);
});

it("stops once the page is left", async () => {
  const { load, rerender, unmount } = show(true);
  await pass(100);
  rerender({ live: false });
  await pass(100);
  unmount();
  await pass(60_000);
  expect(load).toHaveBeenCalledTimes(2);
});
