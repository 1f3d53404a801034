import { useQueries, useQueryClient } from "@tanstack/react-query";
import { logPageQuery, PAGE_LINES, type LogPlace } from "@/features/runs/logQueries";
import { useDebounced } from "@/lib/useDebounced";

/** Who drags the scrollbar passes hundreds of pages that nobody reads. */
const REST_MS = 60;

/**
 * The texts of the lines in sight and of the next page, by their numbers; undefined while one is on its way.
 *
 * @param begin the first row in sight, from 0
 * @param end the first row below what is in sight
 */
export function useLogLines(place: LogPlace, total: number, bytes: number, begin: number, end: number) {
  const client = useQueryClient();
  const first = Math.floor(Math.max(0, begin - PAGE_LINES / 4) / PAGE_LINES);
  const last = Math.floor(Math.min(total - 1, end + PAGE_LINES / 4) / PAGE_LINES);
  const rested = useDebounced(first, REST_MS) === first;
  const pages = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  const found = useQueries({
    queries: pages.map((page) => ({ ...logPageQuery(client, place, page, total, bytes), enabled: rested })),
  });
  return (line: number): string | undefined => {
    const index = line - 1;
    return found[Math.floor(index / PAGE_LINES) - first]?.data?.[index % PAGE_LINES]?.text;
  };
}
