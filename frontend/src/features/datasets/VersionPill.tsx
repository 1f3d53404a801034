import type { DatasetVersion } from "@/api/types";
import { StateIcon, type Shape } from "@/components/StateIcon";

const LOOKS: Record<DatasetVersion["state"], { shape: Shape; word: string; color: string }> = {
  waiting: { shape: "hollow-circle", word: "Waiting", color: "text-idle" },
  reading: { shape: "half-circle", word: "Reading", color: "text-accent" },
  ready: { shape: "tick", word: "Read", color: "text-good" },
  failed: { shape: "cross", word: "Failed", color: "text-bad" },
};

export function VersionPill({ version }: { version: DatasetVersion }) {
  const { shape, word, color } = LOOKS[version.state];
  return (
    <span className={`inline-flex items-center gap-1.5 align-middle whitespace-nowrap ${color}`}>
      <StateIcon shape={shape} />
      {word}
    </span>
  );
}
