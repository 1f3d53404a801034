import { useEffect } from "react";

/** What is used of the result of an infinite query. */
interface Paged {
  hasNextPage: boolean;
  isFetching: boolean;
  isFetchNextPageError: boolean;
  fetchNextPage: () => Promise<unknown>;
}

/** Loads all pages of a list, one after the other. */
export function useAllPages({ hasNextPage, isFetching, isFetchNextPageError, fetchNextPage }: Paged): void {
  const isDue = hasNextPage && !isFetching && !isFetchNextPageError;
  useEffect(() => {
    if (isDue) void fetchNextPage();
  }, [isDue, fetchNextPage]);
}
