import type { Freshness } from "@/features/metrics/useLiveMetrics";
import { duration } from "@/lib/format";
import { useNow } from "@/lib/useNow";

const USUAL_SECONDS = 4;

interface Props {
  freshness: Freshness;
  /** How long one step takes: so long nothing new can come. */
  stepSeconds: number | undefined;
}

/** `live`, or by how much the numbers lag. */
export function LivePill({ freshness, stepSeconds = 0 }: Props) {
  const now = useNow();
  const silence = (now - freshness.heard) / 1_000;
  const fresh = silence < Math.max(USUAL_SECONDS, 3 * stepSeconds);
  if (freshness.heard === 0) return <span className="text-small text-soft">connecting</span>;
  return (
    <span className={`min-w-24 text-small ${fresh ? "text-soft" : "text-warn"}`}>
      {fresh ? "live" : `${duration(silence)} behind`}
    </span>
  );
}
