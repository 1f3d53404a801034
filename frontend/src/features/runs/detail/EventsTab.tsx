import { useCallback } from "react";
import { Segmented } from "@/components/Segmented";
import { TextInput } from "@/components/TextInput";
import { EVENT_KINDS, MAX_WORDS_LENGTH, type EventFilter } from "@/features/runs/detail/eventFilter";
import { EventList } from "@/features/runs/detail/EventList";
import { useDelayedCommit } from "@/lib/hooks/useDelayedCommit";

interface Props {
  team: string;
  run: string;
  live: boolean;
  /** As in the address. */
  view: EventFilter;
  onView: (filter: EventFilter) => void;
}

/** All events of a run, and a filter by kind and words. */
export function EventsTab({ team, run, live, view, onView }: Props) {
  const [filter, setFilter] = useDelayedCommit<EventFilter>({ events: view.events, words: view.words }, onView);
  const showAll = useCallback(() => {
    setFilter({ events: undefined, words: undefined });
  }, [setFilter]);
  return (
    <>
      <div role="search" aria-label="Events" className="mb-3 flex flex-wrap items-center gap-3">
        <div className="w-72 max-tablet:w-full">
          <TextInput
            type="search"
            aria-label="Search in events"
            placeholder="Search"
            maxLength={MAX_WORDS_LENGTH}
            value={filter.words ?? ""}
            onChange={({ target: { value } }) => {
              setFilter({ ...filter, words: value === "" ? undefined : value });
            }}
          />
        </div>
        <Segmented
          label="Kind of events"
          value={filter.events ?? "all"}
          options={EVENT_KINDS}
          onChange={(kind) => {
            setFilter({ ...filter, events: kind === "all" ? undefined : kind });
          }}
        />
      </div>
      <div className="panel p-4">
        <EventList team={team} run={run} live={live} filter={filter} onShowAll={showAll} />
      </div>
    </>
  );
}
