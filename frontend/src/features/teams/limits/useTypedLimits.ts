import { useState } from "react";
import { parseLimit, typedLimit, type LimitField } from "@/features/teams/limits/limitFields";

/** The text in the fields of limits: what the user typed, and elsewhere the current limit, which then stays exactly as it is. */
export function useTypedLimits<Name extends string>(fields: readonly LimitField<Name>[], current: Readonly<Partial<Record<Name, number | null>>>) {
  const [edits, setEdits] = useState<Partial<Record<Name, string>>>({});
  const typed = Object.fromEntries(fields.map((field) => [field.name, edits[field.name] ?? typedLimit(current[field.name], field)])) as Record<Name, string>;
  const parsed = fields.map((field) => {
    const { name } = field;
    const isChanged = typed[name] !== typedLimit(current[name], field);
    return [name, isChanged ? parseLimit(typed[name], field) : (current[name] ?? null)] as const;
  });
  return {
    typed,
    onType: (name: Name, text: string) => {
      setEdits((before) => ({ ...before, [name]: text }));
    },
    /** Forgets what was typed. */
    reset: () => {
      setEdits({});
    },
    isValid: parsed.every(([, value]) => value !== undefined),
    limits: Object.fromEntries(parsed) as Record<Name, number | null>,
  };
}
