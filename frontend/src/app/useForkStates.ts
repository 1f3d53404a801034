import { useSuspenseQuery } from "@tanstack/react-query";
import type { Checkpoint } from "@/api/types";
import { checkpointsQuery } from "@/features/checkpoints/queries";

interface ForkStates {
  /** Newest first. */
  states: Checkpoint[];
  /** The one named, or the newest where none is; undefined where it is not there. */
  chosen: Checkpoint | undefined;
}

/** The valid states of a run, from which a fork can go on. */
export function useForkStates(team: string, run: string, named: string | undefined): ForkStates {
  const { data } = useSuspenseQuery(checkpointsQuery(team, run, false));
  const states = data.filter(({ kind, valid }) => kind === "state" && valid).sort((one, other) => other.step - one.step);
  return { states, chosen: named === undefined ? states[0] : states.find(({ id }) => id === named) };
}
