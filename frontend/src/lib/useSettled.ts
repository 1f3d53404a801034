import { useEffect, useRef } from "react";
import { useFollowing } from "@/lib/useFollowing";

const PAUSE_MS = 250;

/** What somebody chooses: shown at once, and told when they pause, where telling makes all of the page anew. */
export function useSettled<Value>(source: Value, onSettled: (value: Value) => void): [Value, (value: Value) => void] {
  const [value, setValue] = useFollowing(source);
  const latest = useRef(onSettled);
  useEffect(() => {
    latest.current = onSettled;
  });
  useEffect(() => {
    if (value === source) return;
    const timer = setTimeout(() => {
      latest.current(value);
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [value, source]);
  return [value, setValue];
}
