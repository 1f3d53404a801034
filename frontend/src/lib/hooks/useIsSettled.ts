import { useEffect, useState } from "react";

/** Time for the page's main requests and its first drawing. */
const SETTLE_MS = 400;

/** False while the component has just appeared: requests that the first drawing does not need wait until it is true. */
export function useIsSettled(): boolean {
  const [isSettled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => {
      setSettled(true);
    }, SETTLE_MS);
    return () => {
      clearTimeout(timer);
    };
  }, []);
  return isSettled;
}
