import type { Preparation } from "@/api/types";
import { StateIcon, type Shape } from "@/components/StateIcon";

const LOOKS: Record<Preparation["state"], { shape: Shape; word: string; color: string }> = {
  waiting: { shape: "hollow-circle", word: "Waiting", color: "text-idle" },
  working: { shape: "half-circle", word: "Preparing", color: "text-accent" },
  ready: { shape: "tick", word: "Ready", color: "text-good" },
  failed: { shape: "cross", word: "Failed", color: "text-bad" },
  cancelled: { shape: "square", word: "Cancelled", color: "text-idle" },
};

export function PreparationPill({ preparation }: { preparation: Preparation }) {
  const { shape, word, color } = LOOKS[preparation.state];
  return (
    <span className={`inline-flex items-center gap-1.5 align-middle whitespace-nowrap ${color}`}>
      <StateIcon shape={shape} />
      {word}
    </span>
  );
}
