import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";

interface Props {
  label?: string;
  value: string;
  onChange: (name: string) => void;
}

const MAX_LENGTH = 80;

/** A required field for the name of something. */
export function NameField({ label = "Name", value, onChange }: Props) {
  return (
    <Field label={label}>
      {(control) => (
        <TextInput
          {...control}
          required
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
