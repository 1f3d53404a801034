import { Field } from "@/components/Field";
import { NOT_BLANK } from "@/components/invalidText";
import { TextInput } from "@/components/TextInput";

interface Props {
  label?: string;
  help?: string;
  /** A refusal of the API. */
  error?: string | undefined;
  value: string;
  onChange: (name: string) => void;
}

const MAX_LENGTH = 80;

/** A required field for the name of something. */
export function NameField({ label = "Name", help, error, value, onChange }: Props) {
  return (
    <Field label={label} help={help} error={error}>
      {(control) => (
        <TextInput
          {...control}
          required
          pattern={NOT_BLANK}
          maxLength={MAX_LENGTH}
          autoComplete="off"
          value={value}
          onChange={(event) => {
            onChange(event.target.value);
          }}
        />
      )}
    </Field>
  );
}
