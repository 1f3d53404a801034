import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { ApiError } from "@/api/errors";
import type { Problem, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { changeLayout, layoutFields, takesEffect, withLayout } from "@/features/runs/layout";
import { LayoutPlan } from "@/features/runs/LayoutPlan";
import { planQuery, specQuery } from "@/features/runs/queries";
import { SpecFieldInput } from "@/features/runs/SpecFieldInput";
import { sectionsOf, specOf, valuesOf, type Json, type JsonSchema } from "@/lib/specForm";
import { useDebounced } from "@/lib/useDebounced";

interface Props {
  team: string;
  run: Run;
  onChanged: (run: Run) => void;
  onClose: () => void;
}

const DRAW_AFTER_MS = 300;

/** Another layout for a run: the fields of its parallelism, and pictures of what they come to. */
export function ChangeLayout({ team, run, onChanged, onClose }: Props) {
  const { data: info } = useSuspenseQuery(specQuery);
  const fields = useMemo(() => layoutFields(sectionsOf(info.run_spec as JsonSchema)), [info]);
  const [values, setValues] = useState(() => valuesOf(run.spec as unknown as Record<string, Json>, fields).values);
  const said = useMemo(() => specOf(values, fields), [values, fields]);
  const spec = useDebounced(useMemo(() => withLayout(run, said), [run, said]), DRAW_AFTER_MS);
  const { error: misfit } = useQuery(planQuery(team, spec));
  const change = useMutation({
    mutationFn: () => changeLayout(team, run.id, said),
    onSuccess: (answer) => {
      onChanged(answer);
      onClose();
    },
  });
  const problems = [...problemsOf(change.error), ...problemsOf(misfit)];
  const told = problemsOf(change.error).some(({ field }) => fields.some(({ path }) => isAt(path, field)));
  return (
    <Dialog
      wide
      title={`Layout of ${run.name}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Leave it as it is</Button>
          <Button look="primary" type="submit" form="change-layout" disabled={change.isPending}>
            Change layout
          </Button>
        </>
      }
    >
      <p>
        The same {run.spec.resources.nodes * run.spec.resources.slots_per_node} ranks, cut in another way. {takesEffect(run)} It sees
        the same text in the same order.
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
            problem={problems.find((one) => isAt(field.path, one.field))?.message}
            datasets={[]}
            tokenizers={[]}
            tokenizerKind=""
            onChange={(value) => {
              setValues({ ...values, [field.path]: value });
            }}
          />
        ))}
        <LayoutPlan team={team} spec={spec} />
      </form>
      {change.error !== null && !told && <ErrorNote error={change.error} />}
    </Dialog>
  );
}

function problemsOf(error: unknown): readonly Problem[] {
  return error instanceof ApiError ? error.problems : [];
}

/** Whether a problem is this field's: a list's lies at one of its parts, and a layout alone has no section around the batch. */
function isAt(path: string, field: string): boolean {
  return field === path || field.startsWith(`${path}.`) || `batch.${field}` === path;
}
