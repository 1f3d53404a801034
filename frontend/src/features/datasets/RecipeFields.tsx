import type { Problem } from "@/api/types";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { RULES, type mistakesOf, type RecipeDraft } from "@/features/datasets/recipe";

interface Props {
  draft: RecipeDraft;
  mistakes: ReturnType<typeof mistakesOf>;
  /** What the API refused. */
  problems: readonly Problem[];
  onChange: (draft: RecipeDraft) => void;
}

/** Which documents are kept. An empty rule keeps all. */
export function RecipeFields({ draft, mistakes, problems, onChange }: Props) {
  return (
    <div className="flex flex-col gap-4">
      <label className="flex items-center gap-2 max-tablet:min-h-11">
        <input
          type="checkbox"
          checked={draft.dropDuplicates}
          onChange={(event) => {
            onChange({ ...draft, dropDuplicates: event.target.checked });
          }}
        />
        Leave out duplicates: of documents with exactly the same text, keep the first
      </label>
      <div className="grid grid-cols-3 gap-x-6 gap-y-4 max-desk:grid-cols-2 max-tablet:grid-cols-1">
        {RULES.map(({ name, label, help }) => (
          <Field key={name} label={label} help={help} error={mistakes[name] ?? refusalOf(name)}>
            {(control) => (
              <TextInput
                {...control}
                inputMode="decimal"
                autoComplete="off"
                placeholder="no limit"
                value={draft.rules[name] ?? ""}
                onChange={(event) => {
                  onChange({ ...draft, rules: { ...draft.rules, [name]: event.target.value } });
                }}
              />
            )}
          </Field>
        ))}
        <Field
          label="Unreadable documents, at most, %"
          help="A version with a larger share of them fails."
          error={mistakes.rejected_limit ?? refusalOf("rejected_limit")}
        >
          {(control) => (
            <TextInput
              {...control}
              inputMode="decimal"
              autoComplete="off"
              placeholder="1"
              value={draft.rejectedLimit}
              onChange={(event) => {
                onChange({ ...draft, rejectedLimit: event.target.value });
              }}
            />
          )}
        </Field>
      </div>
    </div>
  );

  function refusalOf(name: string): string | undefined {
    return problems.find(({ field }) => field.split(".").at(-1) === name)?.message;
  }
}
