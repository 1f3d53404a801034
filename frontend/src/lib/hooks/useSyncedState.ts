import { useState } from "react";

/** Local input state that resets when its source changes elsewhere, for example through browser history. */
export function useSyncedState<Value>(source: Value): [Value, (value: Value) => void] {
  const [previous, setPrevious] = useState(source);
  const [value, setValue] = useState(source);
  if (source === previous) return [value, setValue];
  setPrevious(source);
  setValue(source);
  return [source, setValue];
}
