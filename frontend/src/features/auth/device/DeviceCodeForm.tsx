import { useState, type SubmitEvent } from "react";
import { Button } from "@/components/Button";
import { Field } from "@/components/Field";
import { NOT_BLANK } from "@/components/invalidText";
import { TextInput } from "@/components/TextInput";

/** Asks for the code that the program shows. */
export function DeviceCodeForm({ onTyped }: { onTyped: (code: string) => void }) {
  const [code, setCode] = useState("");

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    onTyped(code.trim());
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      <Field label="Code" help="The program shows it, such as BCDF-GHJK. Never enter a code that someone sent to you.">
        {(control) => (
          <TextInput
            {...control}
            name="code"
            autoComplete="off"
            autoCapitalize="characters"
            spellCheck={false}
            required
            pattern={NOT_BLANK}
            maxLength={20}
            className="font-mono"
            value={code}
            onChange={(event) => {
              setCode(event.target.value);
            }}
          />
        )}
      </Field>
      <Button type="submit" variant="primary">
        Continue
      </Button>
    </form>
  );
}
