import { Check, TriangleAlert } from "lucide-react";
import type { Health } from "@/features/fp8/fp8Health";

interface Props {
  /** What the chart shows, in a sentence. */
  description: string;
  /** Null if nothing was measured yet. */
  health: Health | null;
}

/** Below a chart: what it shows, whether the values are normal, and what to do if not. */
export function HealthNote({ description, health }: Props) {
  const Icon = health?.isHealthy === true ? Check : TriangleAlert;
  return (
    <div className="mt-2 flex flex-col gap-1 border-t pt-2 text-small text-soft">
      <p>{description}</p>
      {health !== null && (
        <p className="flex gap-1.5">
          <Icon aria-hidden size={12} className={`mt-0.5 shrink-0 ${health.isHealthy ? "text-good" : "text-warn"}`} />
          <span>
            <span className={`font-medium ${health.isHealthy ? "text-good" : "text-warn"}`}>{health.isHealthy ? "Normal." : "Needs attention."}</span>{" "}
            {health.message.replaceAll(" %", "\u00a0%")}
          </span>
        </p>
      )}
    </div>
  );
}
