import type { Dataset } from "@/api/types";

/** A run cannot use a dataset without a readable version. */
export function isReadable({ versions }: Dataset): boolean {
  return versions.length === 0 || versions.some(({ state }) => state !== "failed");
}
