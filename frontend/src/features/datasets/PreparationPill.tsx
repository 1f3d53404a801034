import type { Preparation } from "@/api/types";
import { StateIcon, type Shape } from "@/components/StateIcon";

const STATE_STYLES: Record<Preparation["state"], { shape: Shape; label: string; color: string }> = {
  waiting: { shape: "hollow-circle", label: "Queued", color: "text-idle" },
  working: { shape: "half-circle", label: "Preparing", color: "text-accent" },
  ready: { shape: "tick", label: "Ready", color: "text-good" },
  failed: { shape: "cross", label: "Failed", color: "text-bad" },
  cancelled: { shape: "square", label: "Cancelled", color: "text-idle" },
};

export function PreparationPill({ preparation }: { preparation: Preparation }) {
  const { shape, label, color } = STATE_STYLES[preparation.state];
  return (
    <span className={`inline-flex items-center gap-1.5 align-middle whitespace-nowrap ${color}`}>
      <StateIcon shape={shape} />
      {label}
    </span>
  );
}
