import { useState } from "react";
import { parseLimit, typedLimit, type LimitField } from "@/features/teams/limits/limitFields";

/** The text in the fields of limits, at first the current ones. Text that nobody changed stands for exactly the current limit. */
export function useTypedLimits<Name extends string>(fields: readonly LimitField<Name>[], current: Readonly<Partial<Record<Name, number | null>>>) {
  const initial = Object.fromEntries(fields.map((field) => [field.name, typedLimit(current[field.name], field)])) as Record<Name, string>;
  const [typed, setTyped] = useState(initial);
  const parsed = fields.map((field) => {
    const { name } = field;
    return [name, typed[name] === initial[name] ? (current[name] ?? null) : parseLimit(typed[name], field)] as const;
  });
  return {
    typed,
    onType: (name: Name, text: string) => {
      setTyped((before) => ({ ...before, [name]: text }));
    },
    isValid: parsed.every(([, value]) => value !== undefined),
    limits: Object.fromEntries(parsed) as Record<Name, number | null>,
  };
}
