import { useState } from "react";

/** The newest value that was not undefined. */
export function useLatest<T>(value: T | undefined): T | undefined {
  const [latest, setLatest] = useState(value);
  if (value === undefined || Object.is(value, latest)) return latest;
  setLatest(value);
  return value;
}
