import { useSyncExternalStore } from "react";
import type { Freshness } from "@/features/metrics/live/useLiveMetrics";
import { connection } from "@/lib/connection";
import { duration } from "@/lib/format";
import { useNow } from "@/lib/hooks/useNow";

const STALE_SECONDS = 4;

interface Props {
  freshness: Freshness;
  /** Duration of a step, during which no new data can arrive. */
  stepSeconds: number | undefined;
}

/** `live`, or how far the metrics lag behind. Empty while the page is disconnected: its banner says so. */
export function LivePill({ freshness, stepSeconds = 0 }: Props) {
  const now = useNow();
  const lostSince = useSyncExternalStore(connection.subscribe, connection.lostSince);
  const secondsSilent = (now - freshness.lastHeardMs) / 1_000;
  const isFresh = secondsSilent < Math.max(STALE_SECONDS, 3 * stepSeconds);
  if (lostSince !== null) return null;
  if (freshness.lastHeardMs === 0) return <span className="min-w-16 text-small text-soft">connecting</span>;
  return (
    <span className={`min-w-16 whitespace-nowrap text-small ${isFresh ? "text-soft" : "text-warn"}`}>
      {isFresh ? "live" : `${duration(secondsSilent)} behind`}
    </span>
  );
}
