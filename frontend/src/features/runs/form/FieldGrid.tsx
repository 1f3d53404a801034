import { Fragment } from "react";
import type { Dataset, Problem, Tokenizer } from "@/api/types";
import { belongsTo } from "@/features/runs/form/formParts";
import { SpecFieldInput } from "@/features/runs/form/SpecFieldInput";
import type { SpecField, SpecGroup, SpecValues } from "@/features/runs/spec/specFields";

/** What every field of the form needs to know. */
export interface FieldContext {
  values: SpecValues;
  problems: readonly Problem[];
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  /** Whether a fork must keep the field as it is. */
  isFixed?: (path: string) => boolean;
  /** Help that replaces the schema's, by path. */
  help: Readonly<Record<string, string>>;
  onChange: (changed: SpecValues) => void;
  /** Whether the run was started as the form is now. */
  isSubmitted: boolean;
}

/** Fields in two columns, one on phones or for a single field, with a heading over each optional group. */
export function FieldGrid({ fields, context }: { fields: readonly SpecField[]; context: FieldContext }) {
  const { values, problems, datasets, tokenizers, isFixed, help, onChange } = context;
  return (
    <div className={`grid gap-x-6 gap-y-4 max-tablet:grid-cols-1 ${fields.length > 1 ? "grid-cols-2" : "grid-cols-1"}`}>
      {fields.map((field, index) => (
        <Fragment key={field.path}>
          {field.group !== undefined && field.group !== fields[index - 1]?.group && <GroupHeading group={field.group} />}
          <SpecFieldInput
            field={field}
            help={help[field.path]}
            value={values[field.path] ?? ""}
            problem={problems.find((problem) => belongsTo(field.path, problem.field))?.message}
            datasets={datasets}
            tokenizers={tokenizers}
            tokenizerKind={values["data.tokenizer.kind"] ?? ""}
            isFixed={isFixed?.(field.path) === true}
            onChange={(value) => {
              onChange({ [field.path]: value });
            }}
          />
        </Fragment>
      ))}
    </div>
  );
}

function GroupHeading({ group }: { group: SpecGroup }) {
  return (
    <div className="col-span-full mt-1 border-t pt-4">
      <h4 className="font-medium">{group.label}</h4>
      <p className="text-small text-soft">{group.help}</p>
    </div>
  );
}
