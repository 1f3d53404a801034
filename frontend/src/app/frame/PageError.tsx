import { useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { useEffect, useState, useSyncExternalStore } from "react";
import { ErrorState } from "@/components/ErrorState";
import { connection } from "@/lib/connection";

/** Replaces a page that could not be loaded. Retries once the connection is back. */
export function PageError({ error }: ErrorComponentProps) {
  const router = useRouter();
  const epoch = useSyncExternalStore(connection.subscribe, connection.epoch);
  const [failedEpoch] = useState(epoch);
  useEffect(() => {
    if (epoch !== failedEpoch) void router.invalidate();
  }, [epoch, failedEpoch, router]);
  return <ErrorState titled error={error} onRetry={() => void router.invalidate()} />;
}
