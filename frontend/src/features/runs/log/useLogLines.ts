import { useQueries, useQueryClient } from "@tanstack/react-query";
import type { LogLine } from "@/api/types";
import { logPageQuery, PAGE_LINES, type LogSource } from "@/features/runs/log/logQueries";
import { useDebounced } from "@/lib/hooks/useDebounced";

/** Dragging the scrollbar passes hundreds of pages that nobody reads. */
const SCROLL_DELAY_MS = 60;

/**
 * The visible lines and of the next page, by line number; undefined while loading.
 *
 * @param start the first visible row, from 0
 * @param end the first row below the visible ones
 */
export function useLogLines(place: LogSource, total: number, bytes: number, start: number, end: number) {
  const client = useQueryClient();
  const first = Math.floor(Math.max(0, start - PAGE_LINES / 4) / PAGE_LINES);
  const last = Math.floor(Math.min(total - 1, end + PAGE_LINES / 4) / PAGE_LINES);
  const isSettled = useDebounced(first, SCROLL_DELAY_MS) === first;
  const pages = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  const found = useQueries({
    queries: pages.map((page) => ({ ...logPageQuery(client, place, page, total, bytes), enabled: isSettled })),
  });
  return (line: number): LogLine | undefined => {
    const index = line - 1;
    return found[Math.floor(index / PAGE_LINES) - first]?.data?.[index % PAGE_LINES];
  };
}
