import { useQuery } from "@tanstack/react-query";
import { memo, useState } from "react";
import type { RunEvent } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorState } from "@/components/ErrorState";
import { StateIcon } from "@/components/StateIcon";
import { filterEvents, isFiltered, type EventFilter } from "@/features/runs/detail/eventFilter";
import { groupEvents, groupText, type EventGroup } from "@/features/runs/detail/eventGroups";
import { eventsQuery } from "@/features/runs/queries";
import { capitalize, clockTime, count, fullTime, moment, plural } from "@/lib/format";
import { stateStyle } from "@/lib/runs/stateStyle";

interface Props {
  team: string;
  run: string;
  live: boolean;
  /** Shows only the newest events, a group counting as one. */
  limit?: number;
  filter?: EventFilter;
  onShowAll?: () => void;
}

const NO_FILTER: EventFilter = {};

/** A run's events, newest first. */
export const EventList = memo(function EventList({ team, run, live, limit = Infinity, filter = NO_FILTER, onShowAll }: Props) {
  const { data: events, error, refetch } = useQuery(eventsQuery(team, run, live));
  if (events === undefined && error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (events === undefined) return <p className="animate-appear text-soft">Loading</p>;
  if (events.length === 0) return <p className="text-soft">No events yet.</p>;
  const found = filterEvents(events, filter);
  const shown = groupEvents(found.toReversed()).slice(0, limit);
  const isShort = isFiltered(filter);
  return (
    <>
      <div className={isShort ? "mb-2 flex flex-wrap items-center gap-3 text-small text-soft" : "sr-only"}>
        <p role="status">{isShort && (found.length === 0 ? "No matching events." : `${count(found.length)} of ${plural(events.length, "event")}`)}</p>
        {isShort && <Button onClick={onShowAll}>Show all events</Button>}
      </div>
      <ol className="grid grid-cols-[auto_6.5rem_minmax(0,1fr)] gap-x-3 gap-y-0.5 max-tablet:grid-cols-[auto_minmax(0,1fr)]">
        {shown.map((group, index) => (
          <GroupItem key={group.events[0].sequence} group={group} after={shown[index - 1]?.events[0]} />
        ))}
      </ol>
    </>
  );
});

/** One event, or several similar ones as one line that opens. */
function GroupItem({ group, after }: { group: EventGroup; after: RunEvent | undefined }) {
  const [isOpen, setOpen] = useState(false);
  const { events } = group;
  if (events.length === 1) return <EventItem event={events[0]} after={after} />;
  return (
    <>
      <li className={ITEM_CLASS}>
        <EventTime time={events[0].time} />
        <span className={MESSAGE_CLASS}>
          {capitalize(groupText(group))}{" "}
          <button
            type="button"
            aria-expanded={isOpen}
            className="rounded-box text-accent hover:underline max-tablet:-my-2.5 max-tablet:min-h-11"
            onClick={() => {
              setOpen(!isOpen);
            }}
          >
            {isOpen ? "Show as one" : "Show each"}
          </button>
        </span>
      </li>
      {isOpen && events.map((event) => <EventItem key={event.sequence} event={event} />)}
    </>
  );
}

/** Columns of the list: time, state and message. On phones the message follows the state. */
const ITEM_CLASS = "col-span-full grid grid-cols-subgrid items-baseline leading-6";
const MESSAGE_CLASS = "col-start-3 min-w-0 break-words max-tablet:col-start-2";

/** An event. `after` is the next one: if both give the same reason, as stopping and failing do, only `after` shows it. */
function EventItem({ event, after }: { event: RunEvent; after?: RunEvent | undefined }) {
  return (
    <li className={ITEM_CLASS}>
      <EventTime time={event.time} />
      <div className="contents max-tablet:block max-tablet:min-w-0 max-tablet:break-words">
        <EventState event={event} />
        <span className={MESSAGE_CLASS}>{event.state === "stopping" && after?.message === event.message ? "" : eventText(event)}</span>
      </div>
    </li>
  );
}

function EventTime({ time }: { time: string }) {
  return (
    <time dateTime={time} title={fullTime(time)} className="whitespace-nowrap text-soft">
      {eventTime(time)}
    </time>
  );
}

function EventState({ event }: { event: RunEvent }) {
  if (event.state === null || event.state === undefined) return null;
  const { shape, label, color } = stateStyle[event.state];
  return (
    <span className={`inline-flex max-tablet:mr-2 items-center gap-1.5 font-medium ${color}`}>
      <StateIcon shape={shape} />
      {label}
    </span>
  );
}

/** A sentence; `by Ada` after the state Paused, not `Paused by Ada`; `to pause, asked by Ada` after Stopping. */
function eventText({ state, message }: RunEvent): string {
  if (state === "stopping" && /^(Paused|Cancelled) by /.test(message)) {
    return message.replace(/^Paused by /, "to pause, asked by ").replace(/^Cancelled by /, "to cancel, asked by ");
  }
  const label = state === null || state === undefined ? "" : `${stateStyle[state].label} `;
  return label !== "" && message.startsWith(`${label}by `) ? message.slice(label.length) : capitalize(message);
}

function eventTime(time: string): string {
  const today = new Date(time).toDateString() === new Date().toDateString();
  return today ? clockTime(time) : moment(time);
}
