import { useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { useEffect, useState, useSyncExternalStore } from "react";
import { ErrorState } from "@/components/ErrorState";
import { connection } from "@/lib/connection";

/** In place of the whole frame, when not even the person is known. Tries again once the connection is back. */
export function FrameError({ error }: ErrorComponentProps) {
  const router = useRouter();
  const epoch = useSyncExternalStore(connection.subscribe, connection.epoch);
  const [failedIn] = useState(epoch);
  useEffect(() => {
    if (epoch !== failedIn) void router.invalidate();
  }, [epoch, failedIn, router]);
  return (
    <main className="p-6">
      <ErrorState titled error={error} onRetry={() => void router.invalidate()} />
    </main>
  );
}
