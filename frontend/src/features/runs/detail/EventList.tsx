import { useQuery } from "@tanstack/react-query";
import { memo } from "react";
import type { RunEvent } from "@/api/types";
import { ErrorState } from "@/components/ErrorState";
import { StateIcon } from "@/components/StateIcon";
import { eventsQuery } from "@/features/runs/queries";
import { clockTime, fullTime, moment } from "@/lib/format";
import { stateStyle } from "@/lib/runs/stateStyle";

interface Props {
  team: string;
  run: string;
  live: boolean;
  /** Shows only the newest events. */
  limit?: number;
}

/** A run's events, newest first. */
export const EventList = memo(function EventList({ team, run, live, limit = Infinity }: Props) {
  const { data: events, error, refetch } = useQuery(eventsQuery(team, run, live));
  if (events === undefined && error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  if (events === undefined) return <p className="animate-appear text-soft">Loading</p>;
  if (events.length === 0) return <p className="text-soft">No events yet.</p>;
  const shown = events.toReversed().slice(0, limit);
  return (
    <ol className="flex flex-col gap-0.5">
      {shown.map((event) => (
        <li key={event.sequence} className="grid grid-cols-[auto_1fr] gap-x-3 leading-6">
          <time dateTime={event.time} title={fullTime(event.time)} className="whitespace-nowrap text-soft">
            {eventTime(event.time)}
          </time>
          <span className="min-w-0 break-words">
            <EventState event={event} />
            {event.message}
          </span>
        </li>
      ))}
    </ol>
  );
});

function EventState({ event }: { event: RunEvent }) {
  if (event.state === null || event.state === undefined) return null;
  const { shape, label, color } = stateStyle[event.state];
  return (
    <span className={`mr-2 inline-flex items-center gap-1.5 font-medium ${color}`}>
      <StateIcon shape={shape} />
      {label}
    </span>
  );
}

function eventTime(time: string): string {
  const today = new Date(time).toDateString() === new Date().toDateString();
  return today ? clockTime(time) : moment(time);
}
