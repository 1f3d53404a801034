import { useCallback, useEffect, useRef, useState } from "react";

const PAUSE_MS = 250;

/**
 * What somebody chooses: shown at once, and told when they pause or leave, where telling makes all of the page anew. What is
 * chosen stays when the source says what it was told, and gives way when the source says anything else.
 */
export function useSettled<Value>(source: Value, onSettled: (value: Value) => void): [Value, (value: Value) => void] {
  const words = JSON.stringify(source);
  const [held, hold] = useState({ value: source, seen: words, told: words });
  let { value } = held;
  if (held.seen !== words) {
    if (held.told !== words) value = source;
    hold({ value, seen: words, told: words });
  }
  const latest = useRef({ onSettled, leave: () => {} });
  useEffect(() => {
    const leave = () => {
      const chosen = JSON.stringify(value);
      if (chosen !== words && chosen !== held.told) onSettled(value);
    };
    latest.current = { onSettled, leave };
  });
  useEffect(() => {
    if (JSON.stringify(value) === words) return;
    const timer = setTimeout(() => {
      hold((old) => ({ ...old, told: JSON.stringify(value) }));
      latest.current.onSettled(value);
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [value, words]);
  useEffect(
    () => () => {
      latest.current.leave();
    },
    [],
  );
  const choose = useCallback((next: Value) => {
    hold((old) => ({ ...old, value: next }));
  }, []);
  return [value, choose];
}
