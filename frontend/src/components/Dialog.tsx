import { useId, useLayoutEffect, useRef, type ReactNode } from "react";

interface Props {
  title: ReactNode;
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
  // A layout effect is undone while the dialog is still in the page: only then does closing it return the focus.
  useLayoutEffect(() => {
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
      className={`m-auto rounded-box border border-line bg-surface px-6 pt-6 text-text shadow-float ${wide ? "w-[min(960px,calc(100vw-32px))]" : "w-[min(480px,calc(100vw-32px))]"}`}
    >
      <h2 id={titleId} className="text-title font-semibold break-words">
        {title}
      </h2>
      <div className="mt-2 flex flex-col gap-4 text-soft">{children}</div>
      {/* In sight also while the content is higher than the window. */}
      <div className="sticky bottom-0 z-1 -mx-6 mt-4 flex flex-wrap justify-end gap-2 bg-surface px-6 pt-2 pb-6">{actions}</div>
    </dialog>
  );
}
