import type { DatasetVersion } from "@/api/types";
import { StateIcon, type Shape } from "@/components/StateIcon";

const STATE_STYLES: Record<DatasetVersion["state"], { shape: Shape; label: string; color: string }> = {
  waiting: { shape: "hollow-circle", label: "Queued", color: "text-idle" },
  reading: { shape: "half-circle", label: "Reading", color: "text-accent" },
  ready: { shape: "tick", label: "Processed", color: "text-good" },
  failed: { shape: "cross", label: "Failed", color: "text-bad" },
};

export function VersionPill({ version }: { version: DatasetVersion }) {
  const { shape, label, color } = STATE_STYLES[version.state];
  return (
    <span className={`inline-flex items-center gap-1.5 align-middle whitespace-nowrap ${color}`}>
      <StateIcon shape={shape} />
      {label}
    </span>
  );
}
