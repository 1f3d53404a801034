/** Events that repeat, as one line. */
import type { RunEvent } from "@/api/types";
import { count } from "@/lib/format";

export interface EventGroup {
  /** Newest first. */
  events: [RunEvent, ...RunEvent[]];
}

/** Fewer are shown one by one. */
const MIN_GROUPED = 3;

/** Groups neighbours of the same type in one attempt; changes of state are never grouped. */
export function groupEvents(newestFirst: readonly RunEvent[]): EventGroup[] {
  const runs: EventGroup[] = [];
  for (const event of newestFirst) {
    const last = runs[runs.length - 1]?.events;
    if (last !== undefined && isAlike(last[0], event)) last.push(event);
    else runs.push({ events: [event] });
  }
  return runs.flatMap((group) => (group.events.length < MIN_GROUPED ? group.events.map((event): EventGroup => ({ events: [event] })) : [group]));
}

function isAlike(one: RunEvent, other: RunEvent): boolean {
  return one.state == null && other.state == null && one.type === other.type && one.attempt === other.attempt;
}

/** `saved 10 checkpoints, steps 50 to 500`, or the newest message and how many there are. */
export function groupText({ events }: EventGroup): string {
  const [newest] = events;
  const steps = events.flatMap(({ step }) => step ?? []);
  const range = steps.length === 0 ? "" : `, steps ${count(Math.min(...steps))} to ${count(Math.max(...steps))}`;
  if (newest.type === "checkpoint_saved") return `saved ${count(events.length)} checkpoints${range}.`;
  return `${newest.message.replace(/\.$/, "")}; ${count(events.length)} events like this${range}.`;
}
