import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo, useState, type ReactNode, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, Problem, Run, Tokenizer } from "@/api/types";
import { Button } from "@/components/Button";
import { Segmented } from "@/components/Segmented";
import { Time } from "@/components/Time";
import { deleteDraft } from "@/features/runs/form/draft";
import { LayoutPlan } from "@/features/runs/layout/LayoutPlan";
import { createRun, specQuery, specCheckQuery, type SpecJson } from "@/features/runs/queries";
import { RecipeBar } from "@/features/runs/recipes/RecipeBar";
import { RunEstimatePanel } from "@/features/runs/form/RunEstimatePanel";
import { RunFormSection } from "@/features/runs/form/RunFormSection";
import { RunFormSummary } from "@/features/runs/form/RunFormSummary";
import { useRunDraft, type View } from "@/features/runs/form/useRunDraft";
import { YamlEditor } from "@/features/runs/form/YamlEditor";
import { sectionsOf, type JsonSchema, type SpecValues } from "@/features/runs/spec/specFields";
import { useDebounced } from "@/lib/hooks/useDebounced";

interface Props {
  team: string;
  /** The draft belongs to this user. */
  userId: string;
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  /** Fields filled in by the link to this page. */
  prefill: SpecValues;
  /** The run that the draft was copied from, if any (see `DraftKey`). */
  origin?: string;
  view?: View;
  onView?: (view: View) => void;
  /** How to create the run, if not from its configuration alone. */
  submit?: (spec: SpecJson, key: string) => Promise<Run>;
  submitLabel?: string;
  /** The step that a fork continues from. */
  startStep?: number;
  /** Shown above the fields. */
  children?: ReactNode;
  onCreated: (run: Run) => void;
}

const VALIDATE_AFTER_MS = 300;
const PLACEHOLDER_NAME = "unnamed";
const VIEWS: readonly View[] = ["form", "YAML"];

/** The configuration of a new run, as a form or as YAML, validated by the API while it is edited. */
export function RunForm(props: Props) {
  const { team, userId, datasets, tokenizers, prefill, origin, view = "form", onView, submitLabel = "Start run", startStep = 0, children, onCreated } = props;
  const { data: info } = useSuspenseQuery(specQuery);
  const sections = useMemo(() => sectionsOf(info.run_spec as JsonSchema), [info]);
  const fields = useMemo(() => sections.flatMap((section) => section.fields), [sections]);
  const initial = { "data.dataset": datasets[0]?.id ?? "", ...prefill };
  const writer = { userId, team, origin };
  const draft = useRunDraft(writer, fields, initial, prefill, view);
  const { values, touched } = draft;
  const asForm = draft.text === null;
  const [wasSubmitted, setSubmitted] = useState(false);

  const spec = useDeferredValue(useDebounced(draft.spec, VALIDATE_AFTER_MS));
  // A spec without a name is checked with a placeholder, so that its size is known before it is named.
  const specToCheck = useMemo(() => (spec === null ? {} : { ...spec, name: hasName(spec) ? spec["name"] : PLACEHOLDER_NAME }), [spec]);
  const { data: verdicts } = useQuery({ ...specCheckQuery(team, specToCheck), enabled: spec !== null });
  const submission = useMutation({
    mutationFn: (sentSpec: SpecJson) => (props.submit ?? ((sent, key) => createRun(team, sent, key)))(sentSpec, draft.key),
    onSuccess: (run) => {
      deleteDraft(writer);
      onCreated(run);
    },
  });

  const apiProblems = submission.error instanceof ApiError ? submission.error.problems : [];
  const nameProblem = draft.spec === null || hasName(draft.spec) ? [] : [{ field: "name", message: "This field is required." }];
  const problems = apiProblems.length > 0 ? apiProblems : [...nameProblem, ...(verdicts?.problems ?? [])];
  const shownProblems = wasSubmitted || !asForm ? problems : problems.filter((problem) => !isPremature(problem));
  const faults = draft.read?.syntaxErrors ?? [];
  const lineOf = draft.read?.lineOf ?? null;
  const wrongLines = new Set([...faults.map(({ line }) => line), ...(lineOf === null ? [] : shownProblems.map(({ field }) => lineOf(field)))]);

  /** Whether the problem only concerns a field that is still to be filled in, or a form that was not edited yet. */
  function isPremature({ field }: Problem): boolean {
    if (touched.has(field) || !isEmpty(values, field)) return false;
    return touched.size === 0 || fields.some(({ path, required }) => required && path === field);
  }

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    setSubmitted(true);
    if (draft.spec !== null && nameProblem.length === 0) submission.mutate(draft.spec);
  }

  /** An edit makes a new request, so the previous error no longer applies. */
  function editThenReset(act: () => void): void {
    act();
    submission.reset();
  }

  return (
    <form onSubmit={submit} noValidate className="grid grid-cols-[minmax(0,1fr)_320px] items-start gap-6 max-desk:grid-cols-1">
      <div className="flex min-w-0 flex-col gap-3">
        {children}
        <div className="flex flex-wrap items-start justify-between gap-3">
          <span className="flex min-h-8 items-center">
            <Segmented
              label="Editor"
              value={asForm ? "form" : "YAML"}
              options={VIEWS}
              onChange={(next) => {
                if (draft.show(next)) onView?.(next);
              }}
            />
          </span>
          <RecipeBar
            team={team}
            fields={fields}
            values={values}
            spec={draft.spec}
            onChoose={(next) => {
              editThenReset(() => {
                draft.replace(next);
              });
            }}
          />
        </div>
        {draft.viewError !== null && <p role="alert" className="text-small text-bad">{draft.viewError}</p>}
        {draft.restoredFrom !== null && (
          <p role="status" className="flex flex-wrap items-baseline gap-x-3">
            <span>
              Restored your draft of <Time at={draft.restoredFrom} />.
            </span>
            <Button variant="quiet" onClick={() => { editThenReset(draft.discard); }}>
              Start over
            </Button>
          </p>
        )}
        {draft.text === null ? (
          sections.map((section) => (
            <RunFormSection
              key={section.key}
              section={section}
              values={values}
              problems={shownProblems}
              datasets={datasets}
              tokenizers={tokenizers}
              presets={info.presets}
              onChange={(changed) => {
                editThenReset(() => {
                  draft.change(changed);
                });
              }}
              below={section.key === "parallelism" && spec !== null ? <LayoutPlan team={team} spec={specToCheck} /> : undefined}
            />
          ))
        ) : (
          <YamlEditor
            text={draft.text}
            errorLines={wrongLines}
            onChange={(text) => {
              editThenReset(() => {
                draft.write(text);
              });
            }}
          />
        )}
      </div>
      <RunFormSummary problems={shownProblems} syntaxErrors={faults} lineOf={lineOf} submitLabel={submitLabel} busy={submission.isPending} error={submission.error}>
        <RunEstimatePanel team={team} spec={spec === null ? null : specToCheck} verdicts={spec === null ? undefined : verdicts} startStep={startStep} />
      </RunFormSummary>
    </form>
  );
}

function hasName(spec: SpecJson): boolean {
  return (spec["name"] ?? "") !== "";
}

function isEmpty(values: SpecValues, field: string): boolean {
  return (values[field] ?? "") === "" || field === "";
}
