import { Check, TriangleAlert } from "lucide-react";
import type { Health } from "@/lib/fp8Health";

interface Props {
  /** What the panel shows, in a sentence. */
  shows: string;
  /** Null while nothing was measured. */
  health: Health | null;
}

/** Below a panel: what it shows, whether that is normal, and what to do where it is not. */
export function HealthNote({ shows, health }: Props) {
  const Icon = health?.well === true ? Check : TriangleAlert;
  return (
    <div className="mt-2 flex flex-col gap-1 border-t pt-2 text-small text-soft">
      <p>{shows}</p>
      {health !== null && (
        <p className="flex gap-1.5">
          <Icon aria-hidden size={12} className={`mt-0.5 shrink-0 ${health.well ? "text-good" : "text-warn"}`} />
          <span>
            <span className={`font-medium ${health.well ? "text-good" : "text-warn"}`}>{health.well ? "Normal." : "Look here."}</span>{" "}
            {health.words}
          </span>
        </p>
      )}
    </div>
  );
}
