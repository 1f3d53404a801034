import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";

interface Props {
  title: string;
  /** What will happen, and whether it can be undone. */
  consequence: string;
  confirmLabel: string;
  cancelLabel: string;
  busy: boolean;
  error: unknown;
  onConfirm: () => void;
  onClose: () => void;
}

export function ConfirmDialog({ title, consequence, confirmLabel, cancelLabel, busy, error, onConfirm, onClose }: Props) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>{cancelLabel}</Button>
          <Button variant="danger" disabled={busy} onClick={onConfirm}>
            {confirmLabel}
          </Button>
        </>
      }
    >
      <p>{consequence}</p>
      {error !== null && error !== undefined && <ErrorNote error={error} />}
    </Dialog>
  );
}
