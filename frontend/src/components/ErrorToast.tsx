import { ErrorNote } from "@/components/ErrorNote";

interface Props {
  error: unknown;
  onClose: () => void;
}

/** An error of an action that has no place of its own on the page. */
export function ErrorToast({ error, onClose }: Props) {
  return (
    <div className="fixed right-4 bottom-4 z-30 flex max-w-md items-start gap-2 bg-surface shadow-float">
      <ErrorNote error={error} />
      <button type="button" className="p-2 text-soft hover:text-text" onClick={onClose}>
        Close
      </button>
    </div>
  );
}
