import { useMutation, useQuery } from "@tanstack/react-query";
import type { Checkpoint } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { ShortId } from "@/components/ShortId";
import { deleteCheckpoint, freedSpaceQuery } from "@/features/checkpoints/queries";
import { KIND_LABELS } from "@/features/checkpoints/checkpointText";
import { bytes, count } from "@/lib/format";

interface Props {
  team: string;
  checkpoint: Checkpoint;
  onDeleted: () => void;
  onClose: () => void;
}

/** Asks before deleting a checkpoint, with the space it frees, or says why it cannot be deleted. */
export function DeleteCheckpoint({ team, checkpoint, onDeleted, onClose }: Props) {
  const freed = useQuery(freedSpaceQuery(team, checkpoint));
  const deletion = useMutation({
    mutationFn: () => deleteCheckpoint(team, checkpoint.run, checkpoint.id, false),
    onSuccess: onDeleted,
  });
  const isKept = freed.isError;
  return (
    <Dialog
      title={
        isKept ? (
          "This checkpoint cannot be deleted"
        ) : (
          <>
            Delete step {count(checkpoint.step)} of {checkpoint.run_name || "this run"}<ShortId id={checkpoint.run} />?
          </>
        )
      }
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          {!isKept && (
            <Button
              variant="danger"
              disabled={deletion.isPending || freed.data === undefined}
              onClick={() => {
                deletion.mutate();
              }}
            >
              Delete checkpoint
            </Button>
          )}
        </>
      }
    >
      {freed.isError && <ErrorNote error={freed.error} />}
      {!isKept && (
        <p>
          {KIND_LABELS[checkpoint.kind]}. {freed.data === undefined ? "Calculating freed space…" : `This frees ${bytes(freed.data.bytes)} and cannot be undone.`}
        </p>
      )}
      {deletion.error !== null && <ErrorNote error={deletion.error} />}
    </Dialog>
  );
}
