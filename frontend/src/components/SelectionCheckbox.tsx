import { useEffect, useRef } from "react";

interface Props {
  /** The name of the row, or of all rows. */
  label: string;
  state: "none" | "some" | "all";
  /** `range` is true with Shift: selects all rows from the last one toggled. */
  onToggle: (range: boolean) => void;
}

/**
 * Selects a table row, or all of them. On phones the entire cell is the target, because a tap next to it opens
 * the row.
 */
export function SelectionCheckbox({ label, state, onToggle }: Props) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = state === "some";
  }, [state]);
  return (
    <label className="relative z-1 flex items-center max-tablet:-mx-4 max-tablet:-my-1 max-tablet:h-[56px] max-tablet:justify-center">
      <input
        ref={box}
        type="checkbox"
        className="size-4 cursor-pointer"
        aria-label={`Select ${label}`}
        checked={state === "all"}
        onChange={(event) => {
          onToggle(event.nativeEvent instanceof MouseEvent && event.nativeEvent.shiftKey);
        }}
      />
    </label>
  );
}
