import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { ApiError, errorMessage } from "@/api/errors";
import type { Problem, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { changeLayout, layoutFields, effectText, withLayout } from "@/features/runs/parallelism/layout";
import { LayoutPlan } from "@/features/runs/parallelism/LayoutPlan";
import { planQuery, specQuery } from "@/features/runs/queries";
import { fieldsInOrder, labelsOf, partsOf } from "@/features/runs/form/formParts";
import { SpecFieldInput } from "@/features/runs/form/SpecFieldInput";
import { sectionsOf, specOf, valuesOf, type Json, type JsonSchema } from "@/features/runs/spec/specFields";
import { withFieldLabels } from "@/lib/fieldLabel";
import { useDebounced } from "@/lib/hooks/useDebounced";

interface Props {
  team: string;
  run: Run;
  onChanged: (run: Run) => void;
  onClose: () => void;
}

const PLAN_DELAY_MS = 300;

/** Edits a run's layout: its parallelism fields, with diagrams of the result. */
export function ChangeLayout({ team, run, onChanged, onClose }: Props) {
  const { data: info } = useSuspenseQuery(specQuery);
  const sections = useMemo(() => sectionsOf(info.run_spec as JsonSchema), [info]);
  const fields = useMemo(() => layoutFields(sections), [sections]);
  // Messages name other fields of the configuration too.
  const labels = useMemo(() => labelsOf(fieldsInOrder(partsOf(sections))), [sections]);
  const [values, setValues] = useState(() => valuesOf(run.spec as unknown as Record<string, Json>, fields).values);
  const layout = useMemo(() => specOf(values, fields), [values, fields]);
  const spec = useDebounced(useMemo(() => withLayout(run, layout), [run, layout]), PLAN_DELAY_MS);
  const { error: planError } = useQuery(planQuery(team, spec));
  const change = useMutation({
    mutationFn: () => changeLayout(team, run.id, layout),
    onSuccess: (response) => {
      onChanged(response);
      onClose();
    },
  });
  const problems = [...problemsOf(change.error), ...problemsOf(planError)];
  const problemAt = (path: string) => {
    const message = problems.find(({ field }) => belongsTo(path, field))?.message;
    return message === undefined ? undefined : withFieldLabels(message, labels);
  };
  const isAtField = (error: unknown) => problemsOf(error).some(({ field }) => fields.some(({ path }) => belongsTo(path, field)));
  const isInPlan = change.error !== null && planError !== null && !isAtField(planError) && errorMessage(change.error) === errorMessage(planError);
  return (
    <Dialog
      wide
      title={`Layout of ${run.name}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" form="change-layout" disabled={change.isPending}>
            Change layout
          </Button>
        </>
      }
    >
      <p>
        The same {run.spec.resources.nodes * run.spec.resources.slots_per_node} ranks in another layout. {effectText(run)} The data and
        its order do not change.
      </p>
      <form
        id="change-layout"
        className="grid grid-cols-2 gap-x-6 gap-y-4 text-text max-tablet:grid-cols-1"
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate();
        }}
      >
        {fields.map((field) => (
          <SpecFieldInput
            key={field.path}
            field={field}
            value={values[field.path] ?? ""}
            problem={problemAt(field.path)}
            datasets={[]}
            tokenizers={[]}
            tokenizerKind=""
            onChange={(value) => {
              setValues({ ...values, [field.path]: value });
            }}
          />
        ))}
        <LayoutPlan team={team} spec={spec} hideError={isAtField(planError)} />
      </form>
      {change.error !== null && !isAtField(change.error) && !isInPlan && <ErrorNote error={change.error} />}
    </Dialog>
  );
}

function problemsOf(error: unknown): readonly Problem[] {
  return error instanceof ApiError ? error.problems : [];
}

/**
 * Whether a problem belongs to this field; problems of lists name an element, and batch fields come without their
 * section.
 */
function belongsTo(path: string, field: string): boolean {
  return field === path || field.startsWith(`${path}.`) || `batch.${field}` === path;
}
