import { useState } from "react";

/** What somebody types, begun anew whenever what it stands for changes elsewhere, as by the browser's way back. */
export function useFollowing<Value>(source: Value): [Value, (value: Value) => void] {
  const [before, setBefore] = useState(source);
  const [value, setValue] = useState(source);
  if (source === before) return [value, setValue];
  setBefore(source);
  setValue(source);
  return [source, setValue];
}
