import { useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Checkpoint } from "@/api/types";
import { checkpointsQuery } from "@/features/checkpoints/queries";

interface ForkStates {
  /** Newest first. */
  states: Checkpoint[];
  /** The one named, or where none is the newest when the page was opened; undefined where it is not there. */
  chosen: Checkpoint | undefined;
}

/** The valid states of a run, from which a fork can go on. */
export function useForkStates(team: string, run: string, named: string | undefined): ForkStates {
  const { data } = useSuspenseQuery(checkpointsQuery(team, run, false));
  const states = data.filter(({ kind, valid }) => kind === "state" && valid).sort((one, other) => other.step - one.step);
  // A run that goes on saves others while the form is written.
  const [first] = useState(states[0]?.id);
  const wanted = named ?? first ?? states[0]?.id;
  return { states, chosen: states.find(({ id }) => id === wanted) };
}
