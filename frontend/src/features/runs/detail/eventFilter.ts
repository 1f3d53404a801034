/** Which of a run's events are shown, as in the address. */
import type { RunEvent } from "@/api/types";
import { stateStyle } from "@/lib/runs/stateStyle";

export const EVENT_KINDS = ["all", "states", "checkpoints", "other"] as const;
export type EventKind = (typeof EVENT_KINDS)[number];

export interface EventFilter {
  /** Without it, events of all kinds. */
  events?: Exclude<EventKind, "all"> | undefined;
  /** All of these words occur in the event. */
  words?: string | undefined;
}

export const MAX_WORDS_LENGTH = 200;

export function parseEventFilter({ events, words }: Record<string, unknown>): EventFilter {
  const kind = EVENT_KINDS.find((one) => one === events);
  return {
    ...(kind === undefined || kind === "all" ? {} : { events: kind }),
    // A number in the address is parsed as a number.
    ...((typeof words === "string" && words !== "") || typeof words === "number" ? { words: String(words).slice(0, MAX_WORDS_LENGTH) } : {}),
  };
}

export function isFiltered({ events, words = "" }: EventFilter): boolean {
  return events !== undefined || words.trim() !== "";
}

export function filterEvents(all: readonly RunEvent[], filter: EventFilter): readonly RunEvent[] {
  if (!isFiltered(filter)) return all;
  const { events, words = "" } = filter;
  const wanted = words.toLowerCase().split(/\s+/);
  return all.filter((event) => (events === undefined || kindOf(event) === events) && wanted.every((word) => searchText(event).includes(word)));
}

function kindOf({ state, type }: RunEvent): EventKind {
  if (state != null) return "states";
  return type === "checkpoint_saved" ? "checkpoints" : "other";
}

function searchText({ state, message }: RunEvent): string {
  return `${state == null ? "" : stateStyle[state].label} ${message}`.toLowerCase();
}
