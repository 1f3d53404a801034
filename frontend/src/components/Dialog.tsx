import { useEffect, useId, useRef, type ReactNode } from "react";

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Buttons, the main one last. */
  actions: ReactNode;
  /** For forms with diagrams. */
  wide?: boolean;
}

/** A modal dialog based on the browser's <dialog>: it traps focus, closes with Esc and needs no injected styles. */
export function Dialog({ title, onClose, children, actions, wide = false }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => {
      element?.close();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={titleId}
      onCancel={onClose}
      className={`m-auto rounded-box border border-line bg-surface p-6 text-text shadow-float ${wide ? "w-[min(960px,calc(100vw-32px))]" : "w-[min(480px,calc(100vw-32px))]"}`}
    >
      <h2 id={titleId} className="text-title font-semibold break-words">
        {title}
      </h2>
      <div className="mt-2 flex flex-col gap-4 text-soft">{children}</div>
      <div className="mt-6 flex flex-wrap justify-end gap-2">{actions}</div>
    </dialog>
  );
}
