import type { Problem } from "@/api/types";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { FILTER_RULES, type mistakesOf, type CurationDraft } from "@/features/datasets/curation/curation";

interface Props {
  draft: CurationDraft;
  mistakes: ReturnType<typeof mistakesOf>;
  /** Errors from the API. */
  problems: readonly Problem[];
  onChange: (draft: CurationDraft) => void;
}

/** Which documents are kept. An empty filter keeps all. */
export function CurationFields({ draft, mistakes, problems, onChange }: Props) {
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
        Drop exact duplicates, except the first
      </label>
      <div className="grid grid-cols-3 gap-x-6 gap-y-4 max-desk:grid-cols-2 max-tablet:grid-cols-1">
        {FILTER_RULES.map(({ name, label, help }) => (
          <Field key={name} label={label} help={help} error={mistakes[name] ?? apiErrorOf(name)}>
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
          label="Maximum unreadable documents, %"
          help="If a larger share cannot be read, the version fails."
          error={mistakes.rejected_limit ?? apiErrorOf("rejected_limit")}
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

  function apiErrorOf(name: string): string | undefined {
    return problems.find(({ field }) => field.split(".").at(-1) === name)?.message;
  }
}
