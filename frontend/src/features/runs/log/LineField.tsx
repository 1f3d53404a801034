import { useId } from "react";
import { Button } from "@/components/Button";
import { TextInput } from "@/components/TextInput";
import { count } from "@/lib/format";
import { useSyncedState } from "@/lib/hooks/useSyncedState";

interface Props {
  line: number | undefined;
  /** Number of lines in the log. */
  total: number;
  onLine: (line: number) => void;
  className?: string;
}

/** Goes to a line by its number. */
export function LineField({ line, total, onLine, className = "" }: Props) {
  const id = useId();
  const [text, setText] = useSyncedState(line === undefined ? "" : String(line));
  return (
    <form
      className={`ml-auto flex items-center gap-2 max-tablet:ml-0 ${className}`}
      onSubmit={(event) => {
        event.preventDefault();
        onLine(Number(text));
      }}
    >
      <label htmlFor={id} className="whitespace-nowrap text-soft">
        Go to line
      </label>
      <div className="w-28 max-tablet:w-20">
        <TextInput
          id={id}
          type="number"
          min={1}
          max={total}
          required
          value={text}
          onChange={(event) => {
            setText(event.target.value);
          }}
        />
      </div>
      <span className="whitespace-nowrap text-soft">of {count(total)}</span>
      <Button type="submit">Go</Button>
    </form>
  );
}
