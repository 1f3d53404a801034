import { createParser } from "eventsource-parser";
import { ApiError, ConnectionError } from "@/api/errors";
import { request } from "@/api/client";

export interface StreamEvent {
  /** Where to resume the stream; empty when the event carries no id. */
  id: string;
  name: string;
  data: string;
}

interface StreamOptions {
  url: string;
  lastEventId: string;
  signal: AbortSignal;
  onOpen: () => void;
  onEvent: (event: StreamEvent) => void;
}

const INITIAL_DELAY_MS = 500;
const MAX_DELAY_MS = 5_000;
/** The server sends a comment every 15 s. */
const MAX_SILENCE_MS = 45_000;
const TOO_MANY_REQUESTS = 429;

/**
 * Follows server-sent events until `signal` aborts. After a disconnect it resumes from the last id it received.
 * The browser's EventSource can neither start at an id nor report why a request was refused. Stops when the API refuses
 * (4xx), except for too many requests.
 */
export async function followEvents({ url, lastEventId, signal, onOpen, onEvent }: StreamOptions): Promise<void> {
  let cursor = lastEventId;
  let delay = INITIAL_DELAY_MS;
  while (!signal.aborted) {
    let retryAfterMs = 0;
    const silence = silenceLimit();
    try {
      const headers = { Accept: "text/event-stream", ...(cursor === "" ? {} : { "Last-Event-ID": cursor }) };
      const response = await request(url, { headers, signal: AbortSignal.any([signal, silence.signal]) });
      onOpen();
      delay = INITIAL_DELAY_MS;
      await readEvents(response, silence.restart, (event) => {
        if (event.id !== "") cursor = event.id;
        onEvent(event);
      });
    } catch (error) {
      if (error instanceof ApiError) {
        if (error.status < 500 && error.status !== TOO_MANY_REQUESTS) return;
        retryAfterMs = error.retryAfterMs;
      }
    } finally {
      silence.stop();
    }
    await sleep(Math.max(delay, retryAfterMs), signal);
    delay = Math.min(delay * 2, MAX_DELAY_MS);
  }
}

/** A signal that aborts a connection from which nothing has arrived for a while. */
function silenceLimit() {
  const abort = new AbortController();
  const start = () =>
    setTimeout(() => {
      abort.abort(new ConnectionError());
    }, MAX_SILENCE_MS);
  let timer = start();
  const stop = () => {
    clearTimeout(timer);
  };
  return {
    signal: abort.signal,
    stop,
    restart: () => {
      stop();
      timer = start();
    },
  };
}

/** Reads one response to the end. Comments are bytes, but not events. */
async function readEvents(response: Response, onBytes: () => void, onEvent: (event: StreamEvent) => void): Promise<void> {
  if (response.body === null) return;
  const parser = createParser({
    onEvent: ({ id, event, data }) => {
      onEvent({ id: id ?? "", name: event ?? "message", data });
    },
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes();
    parser.feed(value);
  }
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
