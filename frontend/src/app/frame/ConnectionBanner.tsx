import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { api } from "@/api/client";
import { connection } from "@/lib/connection";
import { clockTime } from "@/lib/format";
import { useNow } from "@/lib/hooks/useNow";

/** Shown above every page while the server does not respond. Reloads all data once it responds again. */
export function ConnectionBanner() {
  const since = useSyncExternalStore(connection.subscribe, connection.lostSince);
  const reconnects = useSyncExternalStore(connection.subscribe, connection.reconnects);
  const client = useQueryClient();
  const [initialReconnects] = useState(reconnects);
  const lastReload = useRef(-Infinity);
  useEffect(() => {
    if (reconnects === initialReconnects) return;
    // While only some requests fail, each reload loses the connection again, so reloads are spaced out.
    const timer = setTimeout(() => {
      lastReload.current = Date.now();
      void client.invalidateQueries();
    }, Math.max(0, lastReload.current + RETRY_MS - Date.now()));
    return () => {
      clearTimeout(timer);
    };
  }, [client, reconnects, initialReconnects]);
  return since === null ? null : <LostBanner since={since} />;
}

const RETRY_MS = 5_000;

/** Shows the banner and retries every five seconds. */
function LostBanner({ since }: { since: number }) {
  const now = useNow();
  const [lastTry, setLastTry] = useState(since);
  useEffect(() => {
    const timer = setInterval(() => {
      setLastTry(Date.now());
      api.GET("/api/v1/health").catch(() => undefined);
    }, RETRY_MS);
    return () => {
      clearInterval(timer);
    };
  }, []);
  const seconds = Math.max(0, Math.ceil((lastTry + RETRY_MS - now) / 1_000));
  return (
    <p role="status" className="sticky top-0 z-20 border-b border-warn bg-surface px-6 py-2 text-warn">
      Disconnected since {clockTime(since).slice(0, 5)}. This page shows no newer data; your runs continue. Retrying in{" "}
      {seconds} s.
    </p>
  );
}
