import { useMutation, useQuery } from "@tanstack/react-query";
import type { Checkpoint } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { deleteCheckpoint, freedQuery } from "@/features/checkpoints/queries";
import { KINDS } from "@/features/checkpoints/words";
import { bytes, count } from "@/lib/format";

interface Props {
  team: string;
  checkpoint: Checkpoint;
  onDeleted: () => void;
  onClose: () => void;
}

/** Asks first, with what it frees by the API's own count, or says why it is kept. */
export function DeleteCheckpoint({ team, checkpoint, onDeleted, onClose }: Props) {
  const freed = useQuery(freedQuery(team, checkpoint));
  const remove = useMutation({
    mutationFn: () => deleteCheckpoint(team, checkpoint.run, checkpoint.id, false),
    onSuccess: onDeleted,
  });
  const kept = freed.isError;
  return (
    <Dialog
      title={kept ? "This checkpoint is kept" : `Delete step ${count(checkpoint.step)} of ${checkpoint.run_name || "this run"}?`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Keep it</Button>
          {!kept && (
            <Button
              look="danger"
              disabled={remove.isPending || freed.data === undefined}
              onClick={() => {
                remove.mutate();
              }}
            >
              Delete checkpoint
            </Button>
          )}
        </>
      }
    >
      {freed.isError && <ErrorNote error={freed.error} />}
      {!kept && (
        <p>
          {KINDS[checkpoint.kind]}. {freed.data === undefined ? "Counting what this frees…" : `This frees ${bytes(freed.data.bytes)} and cannot be undone.`}
        </p>
      )}
      {remove.error !== null && <ErrorNote error={remove.error} />}
    </Dialog>
  );
}
