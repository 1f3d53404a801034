import { useRouter } from "@tanstack/react-router";
import { useCallback, useEffect, useState, useSyncExternalStore } from "react";
import { connection } from "@/lib/connection";

/** Loads a page that failed once more: when called, and once the connection is back. */
export function useRetry(): () => void {
  const router = useRouter();
  const reconnects = useSyncExternalStore(connection.subscribe, connection.reconnects);
  const [reconnectsAtFailure] = useState(reconnects);
  const retry = useCallback(() => void router.invalidate(), [router]);
  useEffect(() => {
    if (reconnects !== reconnectsAtFailure) retry();
  }, [reconnects, reconnectsAtFailure, retry]);
  return retry;
}
