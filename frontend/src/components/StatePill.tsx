import { StateIcon } from "@/components/StateIcon";
import { stateStyle } from "@/lib/runs/stateStyle";
import type { RunState } from "@/api/types";

interface Props {
  state: RunState;
  /** How long the run's node has been silent, if it is suspect. */
  suspectSeconds?: number | null | undefined;
}

/** A run's state: icon, label and colour. */
export function StatePill({ state, suspectSeconds }: Props) {
  const { shape, label, color } = stateStyle[state];
  const isSuspect = suspectSeconds !== null && suspectSeconds !== undefined;
  return (
    <span
      className={`inline-flex items-center gap-1.5 rounded-pill align-middle whitespace-nowrap ${color} ${isSuspect ? "outline-1 outline-offset-4 outline-warn outline-dotted" : ""}`}
    >
      <StateIcon shape={shape} />
      {label}
      {isSuspect && <span className="sr-only">, no contact with its node for {Math.round(suspectSeconds)} s</span>}
    </span>
  );
}
