import { useRouter } from "@tanstack/react-router";
import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import { connection } from "@/lib/connection";

/** Loads a page that failed once more: when called, and once the connection is back. */
export function useRetry(): () => void {
  const router = useRouter();
  const epoch = useSyncExternalStore(connection.subscribe, connection.epoch);
  const [failedEpoch] = useState(epoch);
  const retry = useCallback(() => void router.invalidate(), [router]);
  useEffect(() => {
    if (epoch !== failedEpoch) retry();
  }, [epoch, failedEpoch, retry]);
  return retry;
}
