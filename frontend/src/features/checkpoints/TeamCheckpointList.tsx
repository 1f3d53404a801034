import { useSuspenseInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Checkpoint } from "@/api/types";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { CheckpointTable } from "@/features/checkpoints/CheckpointTable";
import { checkpointGroups } from "@/features/checkpoints/checkpointGroups";
import { teamCheckpointsQuery, type CheckpointFilter } from "@/features/checkpoints/queries";

interface Props {
  team: string;
  filter: CheckpointFilter;
  onClear: () => void;
  onFork: (checkpoint: Checkpoint) => void;
  /** Shown instead of the table when the team has no checkpoints. */
  empty: ReactNode;
}

/** The checkpoints of all the team's runs: newest run first, and of each run the highest step first. */
export function TeamCheckpointList({ team, filter, onClear, onFork, empty }: Props) {
  const { data, hasNextPage, fetchNextPage, isFetchingNextPage } = useSuspenseInfiniteQuery(teamCheckpointsQuery(team, filter));
  // Pages are read one after another: a checkpoint saved in between shifts the rest.
  const all = [...new Map(data.pages.flatMap(({ items }) => items).map((one) => [one.id, one])).values()];
  if (all.length === 0 && (filter.content !== undefined || filter.pinned)) {
    return (
      <EmptyState title="No matching checkpoints.">
        <Button onClick={onClear}>Show all checkpoints</Button>
      </EmptyState>
    );
  }
  if (all.length === 0) return empty;
  return (
    <div className="flex flex-col items-start gap-4">
      <div className="w-full">
        <CheckpointTable team={team} groups={checkpointGroups(all, hasNextPage)} onFork={onFork} />
      </div>
      {hasNextPage && (
        <Button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          Show more checkpoints
        </Button>
      )}
    </div>
  );
}
