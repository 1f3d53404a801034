import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import type { LogLine } from "@/api/types";
import { Button } from "@/components/Button";
import { CopyButton } from "@/components/CopyButton";
import { ErrorNote } from "@/components/ErrorNote";
import { TextInput } from "@/components/TextInput";
import { logMatchesQuery, type LogPlace } from "@/features/runs/logQueries";
import { LineField } from "@/features/runs/LineField";
import type { LogSearch } from "@/features/runs/logSearch";
import { count, plural } from "@/lib/format";
import { useFollowing } from "@/lib/useFollowing";

interface Props {
  place: LogPlace;
  /** Lines of the log. */
  total: number;
  line: number | undefined;
  /** What is searched for; empty: nothing. */
  find: string;
  onView: (view: Pick<LogSearch, "line" | "find">) => void;
}

/** Search through a whole log on the server, and the way to a line by its number. */
export function LogFind({ place, total, line, find, onView }: Props) {
  const client = useQueryClient();
  const [text, setText] = useFollowing(find);
  const matches = useInfiniteQuery({ ...logMatchesQuery(place, find), enabled: find !== "" });
  // An answer counts only for the search that was begun last, and only while nothing else is looked at.
  const search = useRef(0);
  useEffect(
    () => () => {
      search.current += 1;
    },
    [place.run, place.attempt, place.file, line, find],
  );
  const pages = matches.data?.pages ?? [];
  const found = pages.flatMap(({ lines }) => lines);
  const reached = pages[pages.length - 1];
  const more = reached !== undefined && (!reached.end || reached.searched_to < total);

  return (
    <div className="flex flex-wrap items-center gap-2 px-4 py-2 text-small">
      <form
        role="search"
        className="flex min-w-0 flex-wrap items-center gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          if (text === find) void toNext();
          else void begin();
        }}
      >
        <div className="w-56 max-tablet:w-full">
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
          disabled={found.length === 0}
          onClick={() => {
            choose(found.findLast(({ number }) => number < (line ?? Infinity)) ?? found[found.length - 1]);
          }}
        >
          Previous
        </Button>
        <Button type="submit">
          {find !== "" && text === find ? "Next" : "Find"}
        </Button>
      </form>
      <p role="status" className="text-soft">
        {find === "" ? "" : matches.isPending ? "Searching" : words()}
      </p>
      {more && (
        <Button disabled={matches.isFetchingNextPage} onClick={() => void matches.fetchNextPage()}>
          Go on
        </Button>
      )}
      {matches.error !== null && <ErrorNote error={matches.error} />}
      {line !== undefined && <CopyButton key={line} words="Copy link" text={() => window.location.href} />}
      <LineField
        line={line}
        total={total}
        onLine={(wanted) => {
          onView({ line: wanted, find });
        }}
      />
    </div>
  );

  function choose(match: LogLine | undefined): void {
    if (match !== undefined) onView({ line: match.number, find });
  }

  /** A new search, which leads to its first match. */
  async function begin(): Promise<void> {
    const mine = (search.current += 1);
    if (text === "") {
      onView({ line, find: undefined });
      return;
    }
    const first = await client.infiniteQuery(logMatchesQuery(place, text)).catch(() => null);
    if (search.current !== mine) return;
    onView({ line: first?.pages[0]?.lines[0]?.number ?? line, find: text });
  }

  /** The next match; behind the last one the search goes on, and at its end it begins again. */
  async function toNext(): Promise<void> {
    const mine = (search.current += 1);
    const isNext = ({ number }: LogLine) => number > (line ?? 0);
    let next = found.find(isNext);
    if (next === undefined && more) {
      const { data } = await matches.fetchNextPage();
      next = data?.pages.flatMap(({ lines }) => lines).find(isNext);
    }
    if (search.current === mine) choose(next ?? found[0]);
  }

  function words(): string {
    const at = found.findIndex(({ number }) => number === line);
    const place = at === -1 ? "" : `${count(at + 1)} of `;
    const matched = `${place}${plural(found.length, "line")} found`;
    return more ? `${matched} so far; searched to line ${count(reached.searched_to)} of ${count(total)}` : matched;
  }
}
