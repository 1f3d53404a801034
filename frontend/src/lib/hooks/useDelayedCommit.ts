import { useCallback, useEffect, useRef, useState } from "react";

const DELAY_MS = 250;

/**
 * Local state that is shown at once but committed to its source only after a pause or on unmount, because a commit
 * re-renders the page. It is kept when the source reports the committed value, and replaced when the source
 * changes otherwise.
 */
export function useDelayedCommit<Value>(source: Value, onCommit: (value: Value) => void): [Value, (value: Value) => void] {
  const serialized = JSON.stringify(source);
  const [state, setState] = useState({ value: source, source: serialized, committed: serialized });
  let { value } = state;
  if (state.source !== serialized) {
    if (state.committed !== serialized) value = source;
    setState({ value, source: serialized, committed: serialized });
  }
  const latest = useRef({ onCommit, flush: () => {} });
  useEffect(() => {
    const flush = () => {
      const current = JSON.stringify(value);
      if (current !== serialized && current !== state.committed) onCommit(value);
    };
    latest.current = { onCommit, flush };
  });
  useEffect(() => {
    if (JSON.stringify(value) === serialized) return;
    const timer = setTimeout(() => {
      setState((old) => ({ ...old, committed: JSON.stringify(value) }));
      latest.current.onCommit(value);
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [value, serialized]);
  useEffect(
    () => () => {
      latest.current.flush();
    },
    [],
  );
  const setValue = useCallback((next: Value) => {
    setState((old) => ({ ...old, value: next }));
  }, []);
  return [value, setValue];
}
