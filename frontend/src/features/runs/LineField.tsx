import { useId } from "react";
import { Button } from "@/components/Button";
import { TextInput } from "@/components/TextInput";
import { count } from "@/lib/format";
import { useFollowing } from "@/lib/useFollowing";

interface Props {
  line: number | undefined;
  /** Lines of the log. */
  total: number;
  onLine: (line: number) => void;
}

/** The way to a line by its number. */
export function LineField({ line, total, onLine }: Props) {
  const id = useId();
  const [text, setText] = useFollowing(line === undefined ? "" : String(line));
  return (
    <form
      className="ml-auto flex items-center gap-2 max-tablet:ml-0"
      onSubmit={(event) => {
        event.preventDefault();
        onLine(Number(text));
      }}
    >
      <label htmlFor={id} className="text-soft">
        line
      </label>
      <div className="w-28">
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
