import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo, useState, type ReactNode, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, Problem, Run, Tokenizer } from "@/api/types";
import { Button } from "@/components/Button";
import { Segmented } from "@/components/Segmented";
import { Time } from "@/components/Time";
import { dropDraft } from "@/features/runs/draft";
import { LayoutPlan } from "@/features/runs/LayoutPlan";
import { createRun, specQuery, verdictsQuery, type SpecJson } from "@/features/runs/queries";
import { RecipeBar } from "@/features/runs/RecipeBar";
import { RunEstimatePanel } from "@/features/runs/RunEstimatePanel";
import { RunFormSection } from "@/features/runs/RunFormSection";
import { RunFormSummary } from "@/features/runs/RunFormSummary";
import { useRunDraft, type View } from "@/features/runs/useRunDraft";
import { YamlEditor } from "@/features/runs/YamlEditor";
import { sectionsOf, type JsonSchema, type SpecValues } from "@/lib/specForm";
import { useDebounced } from "@/lib/useDebounced";

interface Props {
  team: string;
  /** Who writes; a draft is not shown to another. */
  person: string;
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  /** Fields that the way here has filled in. */
  start: SpecValues;
  /** What the draft is of, where it began from another run (`Writer`). */
  origin?: string;
  view?: View;
  onView?: (view: View) => void;
  /** How the run is made, where not from its configuration alone. */
  submit?: (spec: SpecJson, key: string) => Promise<Run>;
  verb?: string;
  /** The step that a fork goes on from. */
  beginStep?: number;
  /** Above the fields: what else belongs to the run. */
  children?: ReactNode;
  onCreated: (run: Run) => void;
}

const VALIDATE_AFTER_MS = 300;
const STAND_IN = "unnamed";
const VIEWS: readonly View[] = ["form", "YAML"];

/** The configuration of a new run, as a form or as YAML, checked by the API while it is written. */
export function RunForm(props: Props) {
  const { team, person, datasets, tokenizers, start, origin, view = "form", onView, verb = "Start run", beginStep = 0, children, onCreated } = props;
  const { data: info } = useSuspenseQuery(specQuery);
  const sections = useMemo(() => sectionsOf(info.run_spec as JsonSchema), [info]);
  const fields = useMemo(() => sections.flatMap((section) => section.fields), [sections]);
  const fresh = { "data.dataset": datasets[0]?.id ?? "", ...start };
  const writer = { person, team, origin };
  const draft = useRunDraft(writer, fields, fresh, start, view);
  const { values, touched } = draft;
  const asForm = draft.text === null;
  const [asked, setAsked] = useState(false);

  const spec = useDeferredValue(useDebounced(draft.spec, VALIDATE_AFTER_MS));
  // A configuration without a name is checked under a stand-in, so that its size is known before it is named.
  const probe = useMemo(() => (spec === null ? {} : { ...spec, name: named(spec) ? spec["name"] : STAND_IN }), [spec]);
  const { data: verdicts } = useQuery({ ...verdictsQuery(team, probe), enabled: spec !== null });
  const submission = useMutation({
    mutationFn: (asSent: SpecJson) => (props.submit ?? ((sent, key) => createRun(team, sent, key)))(asSent, draft.key),
    onSuccess: (run) => {
      dropDraft(writer);
      onCreated(run);
    },
  });

  const refused = submission.error instanceof ApiError ? submission.error.problems : [];
  const unnamed = draft.spec === null || named(draft.spec) ? [] : [{ field: "name", message: "This field is required." }];
  const problems = refused.length > 0 ? refused : [...unnamed, ...(verdicts?.problems ?? [])];
  const shown = asked || !asForm ? problems : problems.filter((problem) => !isEarly(problem));
  const faults = draft.read?.faults ?? [];
  const lineOf = draft.read?.lineOf ?? null;
  const wrongLines = new Set([...faults.map(({ line }) => line), ...(lineOf === null ? [] : shown.map(({ field }) => lineOf(field)))]);

  /** Whether it only says what is yet to be filled in, or speaks of a form that nobody has touched. */
  function isEarly({ field }: Problem): boolean {
    if (touched.has(field) || !missing(values, field)) return false;
    return touched.size === 0 || fields.some(({ path, required }) => required && path === field);
  }

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    setAsked(true);
    if (draft.spec !== null && unnamed.length === 0) submission.mutate(draft.spec);
  }

  /** What is written now is another request than the one that was refused. */
  function then(act: () => void): void {
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
              label="How to write it"
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
              then(() => {
                draft.replace(next);
              });
            }}
          />
        </div>
        {draft.stay !== null && <p role="alert" className="text-small text-bad">{draft.stay}</p>}
        {draft.restoredFrom !== null && (
          <p role="status" className="flex flex-wrap items-baseline gap-x-3">
            <span>
              Your draft of <Time at={draft.restoredFrom} /> is restored.
            </span>
            <Button look="quiet" onClick={() => { then(draft.beginAnew); }}>
              Begin anew
            </Button>
          </p>
        )}
        {draft.text === null ? (
          sections.map((section) => (
            <RunFormSection
              key={section.key}
              section={section}
              values={values}
              problems={shown}
              datasets={datasets}
              tokenizers={tokenizers}
              presets={info.presets}
              onChange={(changed) => {
                then(() => {
                  draft.change(changed);
                });
              }}
              below={section.key === "parallelism" && spec !== null ? <LayoutPlan team={team} spec={probe} /> : undefined}
            />
          ))
        ) : (
          <YamlEditor
            text={draft.text}
            wrong={wrongLines}
            onChange={(text) => {
              then(() => {
                draft.write(text);
              });
            }}
          />
        )}
      </div>
      <RunFormSummary problems={shown} faults={faults} lineOf={lineOf} verb={verb} busy={submission.isPending} error={submission.error}>
        <RunEstimatePanel team={team} spec={spec === null ? null : probe} verdicts={spec === null ? undefined : verdicts} beginStep={beginStep} />
      </RunFormSummary>
    </form>
  );
}

function named(spec: SpecJson): boolean {
  return (spec["name"] ?? "") !== "";
}

function missing(values: SpecValues, field: string): boolean {
  return (values[field] ?? "") === "" || field === "";
}
