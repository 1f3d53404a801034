import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";

interface Props {
  title: string;
  /** What will happen, and whether it can be undone. */
  consequence: string;
  verb: string;
  keep: string;
  busy: boolean;
  error: unknown;
  onConfirm: () => void;
  onClose: () => void;
}

export function ConfirmDialog({ title, consequence, verb, keep, busy, error, onConfirm, onClose }: Props) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>{keep}</Button>
          <Button look="danger" disabled={busy} onClick={onConfirm}>
            {verb}
          </Button>
        </>
      }
    >
      <p>{consequence}</p>
      {error !== null && error !== undefined && <ErrorNote error={error} />}
    </Dialog>
  );
}
