import { useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Checkpoint } from "@/api/types";
import { checkpointsQuery } from "@/features/checkpoints/queries";

interface ForkStates {
  /** Newest first. */
  states: Checkpoint[];
  /** The requested checkpoint, else the newest one when the page was opened; undefined if it does not exist. */
  chosen: Checkpoint | undefined;
}

/** The valid states of a run, which a fork can continue from. */
export function useForkStates(team: string, run: string, requested: string | undefined): ForkStates {
  const { data } = useSuspenseQuery(checkpointsQuery(team, run, false));
  const states = data.filter(({ kind, valid }) => kind === "state" && valid).sort((one, other) => other.step - one.step);
  // A live run saves more states while the form is open.
  const [initial] = useState(states[0]?.id);
  const selectedId = requested ?? initial ?? states[0]?.id;
  return { states, chosen: states.find(({ id }) => id === selectedId) };
}
