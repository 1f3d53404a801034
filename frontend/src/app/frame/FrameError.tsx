import { useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { useEffect, useState, useSyncExternalStore } from "react";
import { ErrorState } from "@/components/ErrorState";
import { connection } from "@/lib/connection";

/** Replaces the frame when the signed-in user cannot be loaded. Retries once the connection is back. */
export function FrameError({ error }: ErrorComponentProps) {
  const router = useRouter();
  const epoch = useSyncExternalStore(connection.subscribe, connection.epoch);
  const [failedEpoch] = useState(epoch);
  useEffect(() => {
    if (epoch !== failedEpoch) void router.invalidate();
  }, [epoch, failedEpoch, router]);
  return (
    <main className="p-6">
      <ErrorState titled error={error} onRetry={() => void router.invalidate()} />
    </main>
  );
}
