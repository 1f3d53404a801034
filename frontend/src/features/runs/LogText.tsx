import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { ErrorState } from "@/components/ErrorState";
import { earlierLog, logQuery, type LogPlace } from "@/features/runs/queries";
import { bytes as bytesText } from "@/lib/format";

const LINE_PX = 18;
const NEAR_END_PX = 24;

interface Props {
  place: LogPlace;
  bytes: number;
  live: boolean;
}

/** The text of one log. It follows the end until the reader scrolls up. Only the lines in sight are in the page. */
export function LogText({ place, bytes, live }: Props) {
  const options = logQuery(place, bytes, live);
  const { data: tail, error, refetch } = useQuery(options);
  const client = useQueryClient();
  const box = useRef<HTMLDivElement>(null);
  const [following, setFollowing] = useState(true);
  const lines = useMemo(() => linesOf(tail?.text ?? ""), [tail?.text]);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE_PX,
    overscan: 20,
  });
  useEffect(() => {
    if (following && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [following, lines]);

  if (tail === undefined) {
    return error === null ? (
      <div className="h-24 border-t" />
    ) : (
      <div className="border-t p-4">
        <ErrorState error={error} onRetry={() => void refetch()} />
      </div>
    );
  }
  if (lines.length === 0) return <p className="border-t px-4 py-3 text-soft">Nothing is written yet.</p>;
  return (
    <div className="border-t">
      {tail.from > 0 && (
        <button
          type="button"
          className="w-full border-b px-4 py-1.5 text-left text-small text-accent hover:bg-raised"
          onClick={() => {
            setFollowing(false);
            void earlierLog(place, tail).then((whole) => client.setQueryData(options.queryKey, whole));
          }}
        >
          Show earlier lines ({bytesText(tail.from)} more)
        </button>
      )}
      <div
        ref={box}
        role="region"
        aria-label={`Log of attempt ${place.attempt}, ${place.file}`}
        tabIndex={0}
        className="max-h-[60vh] overflow-auto py-2 font-mono text-mono focus-visible:-outline-offset-2"
        onScroll={({ currentTarget: at }) => {
          setFollowing(at.scrollHeight - at.scrollTop - at.clientHeight < NEAR_END_PX);
        }}
      >
        <div className="relative w-max min-w-full" style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map(({ index, start }) => (
            <div key={index} className="absolute left-0 flex min-w-full px-4 hover:bg-raised" style={{ top: start, height: LINE_PX }}>
              <span aria-hidden className="w-12 shrink-0 pr-4 text-right text-soft select-none">
                {tail.from === 0 ? index + 1 : ""}
              </span>
              <span className="whitespace-pre">{lines[index]}</span>
            </div>
          ))}
        </div>
      </div>
      {live && (
        <p className="border-t px-4 py-1 text-small text-soft">
          {following ? "Following the end." : "Not following. Scroll to the end to follow again."}
        </p>
      )}
    </div>
  );
}

// Colours of terminals mean nothing here.
const ESCAPES = new RegExp(String.raw`\u001b\[[0-9;]*[A-Za-z]`, "g");

function linesOf(text: string): string[] {
  if (text === "") return [];
  const lines = text.replace(ESCAPES, "").split(/\r?\n/);
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
}
