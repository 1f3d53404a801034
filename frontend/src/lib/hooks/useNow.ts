import { useEffect, useState } from "react";

/** The current time, updated every `milliseconds`, for ages and countdowns. */
export function useNow(milliseconds = 1_000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(Date.now());
    }, milliseconds);
    return () => {
      clearInterval(timer);
    };
  }, [milliseconds]);
  return now;
}
