import type { Checkpoint } from "@/api/types";
import { bytes, plural } from "@/lib/format";
import { idsOfSharedNames } from "@/lib/sharedNames";

/** Checkpoints of one run. */
export interface CheckpointGroup {
  /** The run that a heading names; without it there is no heading. */
  run?: { id: string; name: string; hasUniqueName: boolean };
  checkpoints: readonly Checkpoint[];
  /** Whether all the run's checkpoints that match the filter are among them. */
  isComplete: boolean;
}

/** Checkpoints in the order of their runs, by run. `hasMore`: the last run may have more of them. */
export function checkpointGroups(ordered: readonly Checkpoint[], hasMore: boolean): CheckpointGroup[] {
  const byRun = new Map<string, Checkpoint[]>();
  for (const checkpoint of ordered) byRun.set(checkpoint.run, [...(byRun.get(checkpoint.run) ?? []), checkpoint]);
  const runs = [...byRun].map(([id, [first]]) => ({ id, name: first?.run_name ?? "" }));
  const sharedNames = idsOfSharedNames(runs);
  return runs.map(({ id, name }, index) => ({
    run: { id, name, hasUniqueName: !sharedNames.has(id) },
    checkpoints: byRun.get(id) ?? [],
    isComplete: !hasMore || index < byRun.size - 1,
  }));
}

/** `3 checkpoints, 1.2 GiB`; a group that is not complete says so. */
export function groupText({ checkpoints, isComplete }: CheckpointGroup): string {
  const size = bytes(checkpoints.reduce((sum, checkpoint) => sum + checkpoint.bytes, 0));
  return isComplete ? `${plural(checkpoints.length, "checkpoint")}, ${size}` : `at least ${plural(checkpoints.length, "checkpoint")}`;
}

/** The lowest validation loss of a complete group with several different ones; otherwise undefined. */
export function lowestLoss({ checkpoints, isComplete }: CheckpointGroup): number | undefined {
  const losses = new Set(checkpoints.flatMap(({ validation_loss: loss }) => loss ?? []));
  return isComplete && losses.size > 1 ? Math.min(...losses) : undefined;
}
