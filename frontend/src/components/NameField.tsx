import type { ReactNode } from "react";
import { Field } from "@/components/Field";
import { NOT_BLANK } from "@/components/invalidText";
import { TextInput } from "@/components/TextInput";

interface Props {
  label?: string;
  /** For a form on one line, with a placeholder instead. */
  hidesLabel?: boolean;
  placeholder?: string;
  className?: string;
  help?: ReactNode;
  /** A refusal of the API. */
  error?: string | undefined;
  value: string;
  onChange: (name: string) => void;
}

const MAX_LENGTH = 80;

/** A required field for the name of something. */
export function NameField({ label = "Name", hidesLabel = false, placeholder, className = "", help, error, value, onChange }: Props) {
  return (
    <Field label={label} hidesLabel={hidesLabel} className={className} help={help} error={error}>
      {(control) => (
        <TextInput
          {...control}
          placeholder={placeholder}
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
