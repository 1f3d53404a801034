import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { parseLimit, type LimitField } from "@/features/teams/limits/limitFields";

interface Props<Name extends string> {
  fields: readonly LimitField<Name>[];
  typed: Readonly<Record<Name, string>>;
  onType: (name: Name, typed: string) => void;
}

/** A number for each limit; an empty one is no limit. */
export function LimitFieldset<Name extends string>({ fields, typed, onType }: Props<Name>) {
  return (
    <>
      {fields.map(({ name, label, unit }) => (
        <Field key={name} label={label} error={parseLimit(typed[name], unit) === undefined ? "Write a number, 0 or more, or leave it empty." : undefined}>
          {(control) => (
            <TextInput
              {...control}
              inputMode="decimal"
              autoComplete="off"
              placeholder="no limit"
              value={typed[name]}
              onChange={(event) => {
                onType(name, event.target.value);
              }}
            />
          )}
        </Field>
      ))}
    </>
  );
}
