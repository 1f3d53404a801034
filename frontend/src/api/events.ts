import { createParser } from "eventsource-parser";
import { ApiError } from "@/api/errors";
import { request } from "@/api/client";

export interface StreamEvent {
  /** Where to go on from; empty when the event carries none. */
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

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5_000;

/**
 * Follows server-sent events until `signal` aborts. After a break it goes on from the last id it saw; the browser's
 * own EventSource can neither begin at an id nor tell why it was refused. Ends by itself when the API refuses (4xx).
 */
export async function followEvents({ url, lastEventId, signal, onOpen, onEvent }: StreamOptions): Promise<void> {
  let cursor = lastEventId;
  let wait = FIRST_WAIT_MS;
  while (!signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream", ...(cursor === "" ? {} : { "Last-Event-ID": cursor }) };
      const response = await request(url, { headers, signal });
      onOpen();
      wait = FIRST_WAIT_MS;
      await readEvents(response, (event) => {
        if (event.id !== "") cursor = event.id;
        onEvent(event);
      });
    } catch (error) {
      if (error instanceof ApiError && error.status < 500) return;
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

/** Reads one response to its end. */
export async function readEvents(response: Response, onEvent: (event: StreamEvent) => void): Promise<void> {
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
    parser.feed(value);
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
