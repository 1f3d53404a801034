import { useEffect, useRef } from "react";

interface Props {
  /** What is chosen. */
  label: string;
  state: "none" | "some" | "all";
  /** With Shift: all from the one pressed last. */
  onPress: (range: boolean) => void;
}

/** Chooses a row of a table, or all of them. On phones its whole cell takes the finger: beside it the row opens. */
export function SelectBox({ label, state, onPress }: Props) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = state === "some";
  }, [state]);
  return (
    <label className="relative z-1 flex items-center max-tablet:-mx-4 max-tablet:-my-1 max-tablet:h-[44px] max-tablet:justify-center">
      <input
        ref={box}
        type="checkbox"
        className="size-4 cursor-pointer"
        aria-label={`Choose ${label}`}
        checked={state === "all"}
        onChange={(event) => {
          onPress(event.nativeEvent instanceof MouseEvent && event.nativeEvent.shiftKey);
        }}
      />
    </label>
  );
}
