import { StateIcon } from "@/components/StateIcon";
import { stateLook } from "@/lib/stateLook";
import type { RunState } from "@/api/types";

interface Props {
  state: RunState;
  /** Seconds of silence of the run's node, when they are many. */
  suspectSeconds?: number | null | undefined;
}

/** A run's state: shape, word and colour. */
export function StatePill({ state, suspectSeconds }: Props) {
  const { shape, word, color } = stateLook[state];
  const suspect = suspectSeconds !== null && suspectSeconds !== undefined;
  return (
    <span
      className={`inline-flex items-center gap-1.5 rounded-pill align-middle whitespace-nowrap ${color} ${suspect ? "outline-1 outline-offset-4 outline-warn outline-dotted" : ""}`}
    >
      <StateIcon shape={shape} />
      {word}
      {suspect && <span className="sr-only">, no word from its node for {Math.round(suspectSeconds)} s</span>}
    </span>
  );
}
