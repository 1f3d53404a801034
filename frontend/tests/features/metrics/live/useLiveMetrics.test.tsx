import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { ReactNode } from "react";
import { metricsKey, metricsQuery, perRankSeriesQuery } from "@/features/metrics/live/metricsQuery";
import { useLiveMetrics } from "@/features/metrics/live/useLiveMetrics";
import { server } from "@tests/support/server";

const METRICS = "*/api/v1/teams/lab/runs/run_1/metrics";

interface Stream {
  lastEventId: string | null;
  /** Sends the loss of a step. */
  send: (step: number) => void;
}

/** The metrics of a run up to step 3, and every stream that the page opens. */
function show(metrics = () => Promise.resolve(HttpResponse.json(snapshot()))) {
  const streams: Stream[] = [];
  server.use(
    http.get(`${METRICS}/stream`, ({ request }) => {
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          const send = (step: number) => {
            const data = JSON.stringify({ attempt: 1, steps: [step], series: { loss: [step] } });
            controller.enqueue(new TextEncoder().encode(`id: 1:${step}\nevent: points\ndata: ${data}\n\n`));
          };
          streams.push({ lastEventId: request.headers.get("Last-Event-ID"), send });
        },
      });
      return new HttpResponse(body, { headers: { "Content-Type": "text/event-stream" } });
    }),
    http.get(METRICS, metrics),
  );
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const wrapper = ({ children }: { children: ReactNode }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>;
  const { result } = renderHook(() => useLiveMetrics("lab", "run_1", true), { wrapper });
  const steps = () => result.current.metrics?.columns["loss"]?.steps;
  return { client, streams, steps };
}

function snapshot() {
  return { series: [{ name: "loss", unit: "", steps: [1, 2, 3], values: [1, 2, 3] }], attempts: [], cursor: "1:3" };
}

it("adds points to the full run and to windows, also while the series of each rank are loaded", async () => {
  const { client, streams, steps } = show();
  const perRank = perRankSeriesQuery("lab", "run_1", null, ["rank_cpu_cores"]).queryKey;
  const ofRanks = { "rank_cpu_cores/0": { steps: [1], values: [1] } };
  await waitFor(() => {
    expect(streams).toHaveLength(1);
  });
  client.setQueryData(perRank, ofRanks);
  const window = metricsQuery("lab", "run_1", { last: 2 });
  await client.query(window);
  act(() => streams[0]?.send(4));
  await waitFor(() => {
    expect(steps()).toEqual([1, 2, 3, 4]);
  });
  await waitFor(() => {
    expect(client.getQueryData(window.queryKey)?.columns["loss"]?.steps).toEqual([3, 4]);
  });
  expect(client.getQueryData(perRank)).toEqual(ofRanks);
});

it("loses no points that arrive while the metrics reload", async () => {
  let requests = 0;
  let respond: (value: undefined) => void = () => undefined;
  const reload = new Promise((resolve) => {
    respond = resolve;
  });
  const { client, streams, steps } = show(async () => {
    requests += 1;
    if (requests > 1) await reload;
    return HttpResponse.json(snapshot());
  });
  await waitFor(() => {
    expect(streams).toHaveLength(1);
  });
  act(() => void client.invalidateQueries({ queryKey: metricsKey("lab", "run_1") }));
  await waitFor(() => {
    expect(requests).toBe(2);
  });
  streams[0]?.send(4);
  await waitFor(() => {
    expect(steps()).toEqual([1, 2, 3, 4]);
  });
  streams[0]?.send(5);
  respond(undefined);
  await waitFor(() => {
    expect(streams).toHaveLength(2);
  });
  expect(streams[1]?.lastEventId).toBe("1:3");
  expect(steps()).toEqual([1, 2, 3]);
});
