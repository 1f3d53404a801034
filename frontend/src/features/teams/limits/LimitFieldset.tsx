import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { count } from "@/lib/format";
import { parseLimit, type LimitField } from "@/features/teams/limits/limitFields";

interface Props<Name extends string> {
  fields: readonly LimitField<Name>[];
  typed: Readonly<Record<Name, string>>;
  onType: (name: Name, typed: string) => void;
  /** What is wrong with a number besides its form. */
  problems?: Readonly<Partial<Record<string, string>>>;
}

/** A field for each limit; an empty one means no limit. */
export function LimitFieldset<Name extends string>({ fields, typed, onType, problems = {} }: Props<Name>) {
  return (
    <>
      {fields.map((field) => (
        <Field key={field.name} label={field.label} error={parseLimit(typed[field.name], field) === undefined ? errorText(field) : problems[field.name]}>
          {(control) => (
            <TextInput
              {...control}
              inputMode={field.isCount ? "numeric" : "decimal"}
              autoComplete="off"
              placeholder={field.isRequired ? undefined : "no limit"}
              value={typed[field.name]}
              onChange={(event) => {
                onType(field.name, event.target.value);
              }}
            />
          )}
        </Field>
      ))}
    </>
  );
}

function errorText({ isCount, isRequired, most }: LimitField<string>): string {
  const number = `Enter a ${isCount ? "whole number" : "number"} from 0 to ${count(most)}`;
  return isRequired ? `${number}.` : `${number}, or leave it empty.`;
}
