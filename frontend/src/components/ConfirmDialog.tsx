import type { ReactNode } from "react";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";

interface Props {
  title: ReactNode;
  /** What will happen, and whether it can be undone. */
  consequence: string;
  confirmLabel: string;
  cancelLabel: string;
  busy: boolean;
  error: unknown;
  onConfirm: () => void;
  onClose: () => void;
  /** What else the person chooses or types. */
  children?: ReactNode;
  /** False while something must still be typed. */
  ready?: boolean;
}

export function ConfirmDialog({ title, consequence, confirmLabel, cancelLabel, busy, error, onConfirm, onClose, children, ready = true }: Props) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>{cancelLabel}</Button>
          <Button variant="danger" disabled={busy || !ready} onClick={onConfirm}>
            {confirmLabel}
          </Button>
        </>
      }
    >
      <p>{consequence}</p>
      {children}
      {error !== null && error !== undefined && <ErrorNote error={error} />}
    </Dialog>
  );
}
