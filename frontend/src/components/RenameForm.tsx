import { useState } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { NOT_BLANK } from "@/components/invalidText";
import { TextInput } from "@/components/TextInput";

interface Props {
  label: string;
  help: string;
  /** The current name. Give it as `key` too, so that a saved name starts a new form. */
  name: string;
  busy: boolean;
  error: unknown;
  onSave: (name: string) => void;
}

const MAX_LENGTH = 80;

/** A name that can be changed. */
export function RenameForm({ label, help, name, busy, error, onSave }: Props) {
  const [typed, setTyped] = useState(name);
  const trimmed = typed.trim();
  const otherError = withoutProblemsAt(error, ["name"]);
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (trimmed !== "" && trimmed !== name) onSave(trimmed);
      }}
    >
      <Field label={label} help={help} error={problemAt(error, "name")}>
        {(control) => (
          <div className="flex gap-2">
            <TextInput
              {...control}
              required
              pattern={NOT_BLANK}
              maxLength={MAX_LENGTH}
              autoComplete="off"
              value={typed}
              onChange={(event) => {
                setTyped(event.target.value);
              }}
            />
            <Button type="submit" disabled={trimmed === name || busy}>
              Save<span className="sr-only"> {label.toLowerCase()}</span>
            </Button>
          </div>
        )}
      </Field>
      {otherError !== null && otherError !== undefined && <ErrorNote error={otherError} />}
    </form>
  );
}
