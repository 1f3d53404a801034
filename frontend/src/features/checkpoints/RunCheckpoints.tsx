import { useSuspenseQuery } from "@tanstack/react-query";
import type { Checkpoint } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { CheckpointTable } from "@/features/checkpoints/CheckpointTable";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { RetentionButton } from "@/features/checkpoints/RetentionButton";

interface Props {
  team: string;
  run: string;
  live: boolean;
  onFork: (checkpoint: Checkpoint) => void;
}

/** The checkpoints of one run, newest first. */
export function RunCheckpoints({ team, run, live, onFork }: Props) {
  const { data } = useSuspenseQuery(checkpointsQuery(team, run, live));
  if (data.length === 0) {
    return (
      <EmptyState title="No checkpoints yet.">
        {live ? "The first appears here once it is saved, sent and verified." : "This run ended before it saved one."}
      </EmptyState>
    );
  }
  const newestFirst = data.toSorted((a, b) => b.step - a.step || a.kind.localeCompare(b.kind));
  return (
    <>
      <CheckpointTable team={team} checkpoints={newestFirst} onFork={onFork} />
      <div className="mt-4">
        <RetentionButton team={team} runs={[run]} />
      </div>
    </>
  );
}
