import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { datasetsQuery } from "@/features/datasets/queries";

/** Names of the team's newest datasets by id. Empty until they are loaded. */
export function useDatasetNames(team: string): ReadonlyMap<string, string> {
  const { data } = useInfiniteQuery({ ...datasetsQuery(team), refetchInterval: false });
  return useMemo(() => new Map((data?.pages ?? []).flatMap(({ items }) => items.map(({ id, name }): [string, string] => [id, name]))), [data]);
}
