import { useSuspenseQuery } from "@tanstack/react-query";
import type { Checkpoint } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { CheckpointTable } from "@/features/checkpoints/CheckpointTable";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { CleanUpButton } from "@/features/checkpoints/CleanUpButton";

interface Props {
  team: string;
  run: string;
  live: boolean;
  onFork: (checkpoint: Checkpoint) => void;
}

/** The checkpoints of one run, newest first. */
export function RunCheckpointList({ team, run, live, onFork }: Props) {
  const { data } = useSuspenseQuery(checkpointsQuery(team, run, live));
  if (data.length === 0) {
    return (
      <EmptyState title="No checkpoints yet.">
        {live ? "The first one appears here once it is saved, uploaded and verified." : "This run ended before saving one."}
      </EmptyState>
    );
  }
  const newestFirst = data.toSorted((a, b) => b.step - a.step || a.kind.localeCompare(b.kind));
  return (
    <>
      <div className="mb-3 flex justify-end empty:hidden">
        <CleanUpButton team={team} runs={[run]} />
      </div>
      <CheckpointTable team={team} groups={[{ checkpoints: newestFirst, isComplete: true }]} onFork={onFork} />
    </>
  );
}
