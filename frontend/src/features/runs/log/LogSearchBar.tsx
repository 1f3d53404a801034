import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { Ellipsis } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import type { LogLine } from "@/api/types";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { ErrorNote } from "@/components/ErrorNote";
import { TextInput } from "@/components/TextInput";
import { logMatchesQuery, type LogSource } from "@/features/runs/log/logQueries";
import { LineField } from "@/features/runs/log/LineField";
import type { LogSearch } from "@/features/runs/log/logSearch";
import { count, plural } from "@/lib/format";
import { useSyncedState } from "@/lib/hooks/useSyncedState";

interface Props {
  place: LogSource;
  /** Number of lines in the log. */
  total: number;
  line: number | undefined;
  /** The search text; empty: none. */
  find: string;
  onView: (view: Pick<LogSearch, "line" | "find">) => void;
}

/** Searches an entire log on the server, and goes to lines by number. */
export function LogSearchBar({ place, total, line, find, onView }: Props) {
  const client = useQueryClient();
  const [text, setText] = useSyncedState(find);
  // Phones have room for the search only.
  const [showsAll, setShowsAll] = useState(false);
  const phoneClass = showsAll ? "" : "max-tablet:hidden";
  const matches = useInfiniteQuery({ ...logMatchesQuery(place, find), enabled: find !== "" });
  // A result counts only if it belongs to the latest search and the user has not moved on.
  const latestSearch = useRef(0);
  useEffect(
    () => () => {
      latestSearch.current += 1;
    },
    [place.run, place.attempt, place.file, line, find],
  );
  const pages = matches.data?.pages ?? [];
  const found = pages.flatMap(({ lines }) => lines);
  const lastPage = pages[pages.length - 1];
  const hasMore = lastPage !== undefined && (!lastPage.end || lastPage.searched_to < total);

  return (
    <div className="flex flex-wrap items-center gap-2 px-4 py-2 text-small">
      <form
        role="search"
        className="flex min-w-0 items-center gap-2 max-tablet:flex-1"
        onSubmit={(event) => {
          event.preventDefault();
          if (text === find) void nextMatch();
          else void startSearch();
        }}
      >
        <div className="w-56 min-w-0 max-tablet:flex-1">
          <TextInput
            type="search"
            aria-label={`Search in ${place.file}`}
            placeholder="Search"
            maxLength={200}
            value={text}
            onChange={(event) => {
              setText(event.target.value);
            }}
          />
        </div>
        <Button
          className={phoneClass}
          disabled={found.length === 0}
          onClick={() => {
            goTo(found.findLast(({ number }) => number < (line ?? Infinity)) ?? found[found.length - 1]);
          }}
        >
          Previous
        </Button>
        <Button type="submit">
          {find !== "" && text === find ? "Next" : "Find"}
        </Button>
      </form>
      <Button
        className="tablet:hidden"
        aria-label="More log controls"
        aria-expanded={showsAll}
        onClick={() => {
          setShowsAll(!showsAll);
        }}
      >
        <Ellipsis aria-hidden size={16} />
      </Button>
      <p role="status" className="text-soft">
        {find === "" ? "" : matches.isPending ? "Searching" : statusText()}
      </p>
      {hasMore && (
        <Button disabled={matches.isFetchingNextPage} onClick={() => void matches.fetchNextPage()}>
          Search more
        </Button>
      )}
      {matches.error !== null && <ErrorNote error={matches.error} />}
      {line !== undefined && (
        <div className={phoneClass}>
          <CopyButton key={line} label="Copy link" text={() => window.location.href} />
        </div>
      )}
      <LineField
        line={line}
        total={total}
        className={phoneClass}
        onLine={(wanted) => {
          onView({ line: wanted, find });
        }}
      />
    </div>
  );

  function goTo(match: LogLine | undefined): void {
    if (match !== undefined) onView({ line: match.number, find });
  }

  /** Starts a search and goes to its first match. */
  async function startSearch(): Promise<void> {
    const searchId = (latestSearch.current += 1);
    if (text === "") {
      onView({ line, find: undefined });
      return;
    }
    const first = await client.infiniteQuery(logMatchesQuery(place, text)).catch(() => null);
    if (latestSearch.current !== searchId) return;
    onView({ line: first?.pages[0]?.lines[0]?.number ?? line, find: text });
  }

  /** Goes to the next match; loads more matches if needed, and wraps around at the end. */
  async function nextMatch(): Promise<void> {
    const searchId = (latestSearch.current += 1);
    const isNext = ({ number }: LogLine) => number > (line ?? 0);
    let next = found.find(isNext);
    if (next === undefined && hasMore) {
      const { data } = await matches.fetchNextPage();
      next = data?.pages.flatMap(({ lines }) => lines).find(isNext);
    }
    if (latestSearch.current === searchId) goTo(next ?? found[0]);
  }

  function statusText(): string {
    const at = found.findIndex(({ number }) => number === line);
    const place = at === -1 ? "" : `${count(at + 1)} of `;
    const matched = `${place}${plural(found.length, "line")} found`;
    return hasMore ? `${matched} so far; searched to line ${count(lastPage.searched_to)} of ${count(total)}` : matched;
  }
}
