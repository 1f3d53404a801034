import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { api } from "@/api/client";
import { connection } from "@/lib/connection";
import { clockTime } from "@/lib/format";
import { useNow } from "@/lib/useNow";

/** Above every page while nothing answers; all that is shown is loaded anew once something does, whoever asked. */
export function ConnectionBanner() {
  const since = useSyncExternalStore(connection.subscribe, connection.lostSince);
  const epoch = useSyncExternalStore(connection.subscribe, connection.epoch);
  const client = useQueryClient();
  const [begun] = useState(epoch);
  const loaded = useRef(-Infinity);
  useEffect(() => {
    if (epoch === begun) return;
    // Where some answer and others do not, what is loaded loses the connection again: not at once.
    const timer = setTimeout(() => {
      loaded.current = Date.now();
      void client.invalidateQueries();
    }, Math.max(0, loaded.current + EVERY_MS - Date.now()));
    return () => {
      clearTimeout(timer);
    };
  }, [client, epoch, begun]);
  return since === null ? null : <Lost since={since} />;
}

const EVERY_MS = 5_000;

/** Says so, and tries again every five seconds. */
function Lost({ since }: { since: number }) {
  const now = useNow();
  const [lastTry, setLastTry] = useState(since);
  useEffect(() => {
    const timer = setInterval(() => {
      setLastTry(Date.now());
      api.GET("/api/v1/health").catch(() => undefined);
    }, EVERY_MS);
    return () => {
      clearInterval(timer);
    };
  }, []);
  const seconds = Math.max(0, Math.ceil((lastTry + EVERY_MS - now) / 1_000));
  return (
    <p role="status" className="sticky top-0 z-20 border-b border-warn bg-surface px-6 py-2 text-warn">
      Not connected since {clockTime(since).slice(0, 5)}. What you see is from then; your runs go on. Trying again in{" "}
      {seconds} s.
    </p>
  );
}
