import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { followEvents, type StreamEvent } from "@/api/events";
import { server } from "@tests/support/server";

const URL = "http://localhost:3000/stream";
let stop: AbortController;

beforeEach(() => {
  stop = new AbortController();
});
afterEach(() => {
  vi.useRealTimers();
  stop.abort();
});

it("reads events across chunks and resumes from the last id after a disconnect", async () => {
  const asked: (string | null)[] = [];
  server.use(
    http.get(URL, ({ request }) => {
      asked.push(request.headers.get("Last-Event-ID"));
      if (asked.length === 1) return streamOf(": hello\n\nid: 1:10\nevent: po", "ints\ndata: {\"a\":1}\n\n");
      if (asked.length === 2) return streamOf("id: 1:20\nevent: rewind\ndata: {}\n\n");
      return new HttpResponse(null, { status: 404 });
    }),
  );
  const events: StreamEvent[] = [];
  await followEvents({
    url: URL,
    lastEventId: "1:0",
    signal: stop.signal,
    onOpen: () => undefined,
    onEvent: (event) => events.push(event),
  });
  expect(events).toEqual([
    { id: "1:10", name: "points", data: '{"a":1}' },
    { id: "1:20", name: "rewind", data: "{}" },
  ]);
  expect(asked).toEqual(["1:0", "1:10", "1:20"]);
});

it("waits as long as the API asks if there are too many streams", async () => {
  const times: number[] = [];
  server.use(
    http.get(URL, () => {
      times.push(Date.now());
      if (times.length > 1) return new HttpResponse(null, { status: 404 });
      return HttpResponse.json({ code: "too_many_streams" }, { status: 429, headers: { "Retry-After": "1" } });
    }),
  );
  await followEvents({ url: URL, lastEventId: "", signal: stop.signal, onOpen: () => undefined, onEvent: () => undefined });
  expect(times).toHaveLength(2);
  expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(950);
});

it("connects again if nothing arrives for a while, and counts comments as signs of life", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const cursors: (string | null)[] = [];
  let stream: ReadableStreamDefaultController<Uint8Array> | undefined;
  const send = (text: string) => stream?.enqueue(new TextEncoder().encode(text));
  server.use(
    http.get(URL, ({ request }) => {
      cursors.push(request.headers.get("Last-Event-ID"));
      const body = new ReadableStream<Uint8Array>({
        start: (controller) => {
          stream = controller;
          // As the browser ends the body of an aborted request.
          request.signal.addEventListener("abort", () => {
            controller.error(request.signal.reason);
          });
        },
      });
      return cursors.length === 1 ? new HttpResponse(body) : new HttpResponse(null, { status: 404 });
    }),
  );
  const events: StreamEvent[] = [];
  const onOpen = vi.fn();
  const end = followEvents({ url: URL, lastEventId: "1:0", signal: stop.signal, onOpen, onEvent: (event) => events.push(event) });
  await vi.waitUntil(() => onOpen.mock.calls.length === 1);
  send("id: 1:10\nevent: points\ndata: {}\n\n");
  await vi.waitUntil(() => events.length === 1);
  await vi.advanceTimersByTimeAsync(40_000);
  send(": heartbeat\n\n");
  await settled();
  await vi.advanceTimersByTimeAsync(40_000);
  await settled();
  expect(cursors).toEqual(["1:0"]);
  await vi.advanceTimersByTimeAsync(10_000);
  await settled();
  await vi.advanceTimersByTimeAsync(1_000);
  await end;
  expect(cursors).toEqual(["1:0", "1:10"]);
});

/** Resolves once what was sent has arrived. */
function settled(): Promise<unknown> {
  return new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
}

function streamOf(...chunks: string[]): Response {
  const encoder = new TextEncoder();
  const body = new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(encoder.encode(chunk));
      controller.close();
    },
  });
  return new HttpResponse(body, { headers: { "Content-Type": "text/event-stream" } });
}
