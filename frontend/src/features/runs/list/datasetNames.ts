import { createContext, useContext } from "react";

const NONE: ReadonlyMap<string, string> = new Map();

/** Names of datasets by id, for lists of runs. A page provides them, because a run's spec has ids only. */
export const DatasetNames = createContext(NONE);

export function useDatasetName(id: string): string {
  return useContext(DatasetNames).get(id) ?? "–";
}
