import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo, useState, type ReactNode, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, Problem, Run, Tokenizer } from "@/api/types";
import { Button } from "@/components/Button";
import { REQUIRED_TEXT } from "@/components/invalidText";
import { Segmented } from "@/components/Segmented";
import { Time } from "@/components/Time";
import { choiceId } from "@/features/runs/form/choiceId";
import { deleteDraft } from "@/features/runs/form/draft";
import { goToField } from "@/features/runs/form/fieldId";
import { fieldsInOrder, labelsOf, linkLabels, partsOf } from "@/features/runs/form/formParts";
import { formProblems } from "@/features/runs/form/formProblems";
import { INITIAL_PRESET, presetOf, valuesOfPreset } from "@/features/runs/form/presets";
import { isReadable } from "@/features/runs/form/readableDatasets";
import { suggestName } from "@/features/runs/form/runName";
import { startReadiness } from "@/features/runs/form/startReadiness";
import { LayoutDiagrams } from "@/features/runs/parallelism/LayoutDiagrams";
import { LayoutPlan } from "@/features/runs/parallelism/LayoutPlan";
import { createRun, planQuery, specQuery, specCheckQuery, type SpecJson } from "@/features/runs/queries";
import { RecipeBar } from "@/features/runs/recipes/RecipeBar";
import { RunEstimatePanel } from "@/features/runs/form/RunEstimatePanel";
import { RunFormFields } from "@/features/runs/form/RunFormFields";
import { RunFormSummary } from "@/features/runs/form/RunFormSummary";
import { useRunDraft, type View } from "@/features/runs/form/useRunDraft";
import { WeightRules } from "@/features/runs/form/WeightRules";
import { goToLine, YamlEditor } from "@/features/runs/form/YamlEditor";
import { hardwareText, whatIfQuery, type Hardware } from "@/features/runs/whatIf/whatIf";
import { WhatIfPanel } from "@/features/runs/whatIf/WhatIfPanel";
import { sectionsOf, type JsonSchema, type SpecValues } from "@/features/runs/spec/specFields";
import { useDebounced } from "@/lib/hooks/useDebounced";
import { useLatest } from "@/lib/hooks/useLatest";

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
  /** What an unnamed run is called, if not after its data and model. */
  nameBase?: string | undefined;
  /** Why a fork cannot change its model. */
  modelNote?: ReactNode;
  /** Names of the team's runs. */
  takenNames?: readonly string[];
  view?: View;
  onView?: (view: View) => void;
  /** How to create the run, if not from its configuration alone. */
  submit?: (spec: SpecJson, key: string) => Promise<Run>;
  submitLabel?: string;
  /** The step that a fork continues from. */
  startStep?: number;
  /** The checkpoint that a fork continues from. */
  checkpoint?: string;
  /** Shown above the fields. */
  children?: ReactNode;
  onCreated: (run: Run) => void;
}

/** Placeholder while no hardware is chosen; the query is then disabled. */
const NO_HARDWARE: Hardware = { gpu: "", gpus: 1, nodes: 1 };
const VALIDATE_AFTER_MS = 300;
/** How long to wait before hiding outdated figures, so that they do not flicker during typing. */
const HIDE_AFTER_MS = 600;
const PLACEHOLDER_NAME = "unnamed";
const VIEWS: readonly View[] = ["form", "YAML"];

/** The configuration of a new run, as a form or as YAML, validated by the API while it is edited. */
export function RunForm(props: Props) {
  const { team, userId, datasets, tokenizers, prefill, origin, nameBase, takenNames = [], view = "form", onView } = props;
  const { submitLabel = "Start run", startStep = 0, modelNote, children, onCreated } = props;
  const { data: info } = useSuspenseQuery(specQuery);
  const sections = useMemo(() => sectionsOf(info.run_spec as JsonSchema), [info]);
  const fields = useMemo(() => sections.flatMap((section) => section.fields), [sections]);
  const parts = useMemo(() => partsOf(sections), [sections]);
  const ordered = useMemo(() => fieldsInOrder(parts), [parts]);
  const labels = useMemo(() => labelsOf(ordered), [ordered]);
  const labelOf = useMemo(() => linkLabels(parts, sections), [parts, sections]);
  /** A run that nobody named is named for its data and model. */
  const nameFor = (given: SpecValues): string => {
    const chosen = choiceId(datasets, given["data.dataset"] ?? "");
    const dataset = datasets.find(({ id }) => id === chosen)?.name ?? "run";
    return suggestName(nameBase ?? [dataset, presetOf(info.presets, given, fields)].filter(Boolean).join("-"), takenNames);
  };
  const [initial] = useState((): SpecValues => {
    const hasModel = Object.keys(prefill).some((path) => path.startsWith("model."));
    const model = hasModel ? {} : valuesOfPreset(info.presets, INITIAL_PRESET, fields);
    return { "data.dataset": (datasets.find(isReadable) ?? datasets[0])?.id ?? "", ...model, ...prefill };
  });
  const writer = { userId, team, origin };
  const draft = useRunDraft({ draftKey: writer, fields, initial, prefill, propose: (given) => ({ name: nameFor(given) }), view });
  const { touched } = draft;
  const suggestedName = nameFor(draft.values);
  const values = useMemo((): SpecValues => ({ name: suggestedName, ...draft.values }), [suggestedName, draft.values]);
  const asForm = draft.text === null;
  // If a recipe or the YAML changed the model, the user can change it back. Every fork may scale its rotary positions, to train on longer sequences.
  const isModelFixed = modelNote !== undefined && fields.every(({ path }) => !shapesModel(path) || (draft.values[path] ?? "") === (initial[path] ?? ""));
  const [wasSubmitted, setSubmitted] = useState(false);

  const isUnnamed = asForm && draft.values["name"] === undefined;
  const named = useMemo(() => (draft.spec !== null && isUnnamed ? { name: suggestedName, ...draft.spec } : draft.spec), [draft.spec, isUnnamed, suggestedName]);
  const spec = useDeferredValue(useDebounced(named, VALIDATE_AFTER_MS));
  // A spec without a name is checked with a placeholder, so that its size is known before it is named.
  const specToCheck = useMemo(() => (spec === null ? {} : { ...spec, name: hasName(spec) ? spec["name"] : PLACEHOLDER_NAME }), [spec]);
  const { data: specCheck, error: checkError, isPlaceholderData: isEarlierCheck } = useQuery({ ...specCheckQuery(team, specToCheck, props.checkpoint), enabled: spec !== null });
  const check = spec === null ? undefined : specCheck;
  // A text that the user has not edited yet describes the default model.
  const [initialSpec] = useState(() => JSON.stringify(named));
  const isOwn = asForm || (!isEarlierCheck && JSON.stringify(spec) !== initialSpec);
  const unnamedSpec = useMemo(() => withoutName(specToCheck), [specToCheck]);
  const planned = useQuery({ ...planQuery(team, unnamedSpec), enabled: check?.spec != null && !isEarlierCheck });
  // The figures are outdated until the form's current configuration has been checked and planned.
  const checkedText = useLatest(specCheck === undefined || isEarlierCheck ? undefined : JSON.stringify(unnamedSpec));
  const isChecking = named !== null && checkError === null && JSON.stringify(withoutName(named)) !== checkedText;
  const isOutdated = isChecking || (check?.spec != null && planned.isPlaceholderData);
  const isUpdating = useDebounced(isOutdated, HIDE_AFTER_MS) && isOutdated;
  const [hardware, setHardware] = useState<Hardware | null>(null);
  const elsewhere = useQuery({
    ...whatIfQuery(team, unnamedSpec, hardware ?? NO_HARDWARE, startStep),
    enabled: hardware !== null && spec !== null,
  });
  const submission = useMutation({
    mutationFn: (sentSpec: SpecJson) => (props.submit ?? ((sent, key) => createRun(team, sent, key)))(sentSpec, draft.key),
    onSuccess: (run) => {
      deleteDraft(writer);
      onCreated(run);
    },
  });

  const apiProblems = submission.error instanceof ApiError ? submission.error.problems : [];
  const nameProblem = named === null || hasName(named) ? [] : [{ field: "name", message: REQUIRED_TEXT }];
  const checked = [...nameProblem, ...(check?.problems ?? [])];
  // A refused submission names the problems of the spec alone, and the check also what the nodes lack.
  const found = [...apiProblems, ...checked.filter(({ field }) => !apiProblems.some((problem) => problem.field === field))];
  const problems = asForm ? formProblems(found, { fields: ordered, values, datasets, tokenizers }) : found;
  const shownProblems = wasSubmitted || !asForm ? problems : problems.filter((problem) => !isPremature(problem));
  const faults = draft.read?.syntaxErrors ?? [];
  const lineOf = draft.read?.lineOf ?? null;
  const wrongLines = new Set([...faults.map(({ line }) => line), ...(lineOf === null ? [] : shownProblems.map(({ field }) => lineOf(field)))]);

  /** Whether the problem only concerns a field that is still to be filled in, or a form that was not edited yet. */
  function isPremature({ field }: Problem): boolean {
    if (touched.has(field) || !isEmpty(values, field)) return false;
    return touched.size === 0 || fields.some(({ path, required }) => required && path === field);
  }

  /** Label of the first problem's field, or its line. */
  function firstProblemLabel(): string | undefined {
    const [problem] = shownProblems;
    const line = faults[0]?.line ?? (problem === undefined ? undefined : lineOf?.(problem.field));
    if (line !== undefined) return `line ${line}`;
    return problem === undefined || problem.field === "" ? undefined : `“${labelOf(problem.field)}”`;
  }

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    setSubmitted(true);
    goToFirstProblem();
    if (named !== null && nameProblem.length === 0) submission.mutate(named);
  }

  /** Where the next step is. A problem that appears only now gets the focus as soon as its field shows it. */
  function goToFirstProblem(): void {
    const [problem] = shownProblems;
    if (problem === undefined) return;
    if (lineOf === null) goToField(problem.field);
    else goToLine(lineOf(problem.field));
  }

  /** An edit makes a new request, so the previous error no longer applies. */
  function editThenReset(act: () => void): void {
    act();
    submission.reset();
  }

  const layout =
    spec === null ? undefined : hardware === null ? (
      <LayoutPlan team={team} spec={unnamedSpec} />
    ) : (
      <LayoutDiagrams
        plan={elsewhere.data?.plan}
        error={elsewhere.error}
        isUpdating={elsewhere.isPlaceholderData}
        {...(elsewhere.data === undefined ? {} : { where: hardwareText(elsewhere.data) })}
      />
    );
  return (
    <form onSubmit={submit} noValidate className="grid grid-cols-[minmax(0,1fr)_320px] items-start gap-6 max-desk:flex max-desk:flex-col max-desk:items-stretch max-desk:gap-3">
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
            values={draft.values}
            spec={named}
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
          <RunFormFields
            parts={parts}
            info={info}
            check={check}
            startStep={startStep}
            modelNote={modelNote}
            isTooLarge={!isUpdating && planned.data?.too_large != null}
            labelOf={labelOf}
            context={{
              values,
              problems: shownProblems,
              datasets,
              tokenizers,
              isFixed: (path) => isModelFixed && shapesModel(path),
              help: {},
              isSubmitted: submission.status !== "idle",
              onChange: (changed) => {
                editThenReset(() => {
                  draft.change(changed);
                });
              },
            }}
            below={{ optimizer: <WeightRules plan={planned.data} isUpdating={planned.isPlaceholderData} />, parallelism: layout }}
          />
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
      <RunFormSummary
        problems={shownProblems}
        syntaxErrors={faults}
        labelOf={labelOf}
        lineOf={lineOf}
        verdict={startReadiness({ problemCount: faults.length > 0 ? faults.length : shownProblems.length, firstProblem: firstProblemLabel(), check, plan: planned.data, isUpdating, labels })}
        submitLabel={submitLabel}
        busy={submission.isPending}
        error={submission.error}
      >
        <RunEstimatePanel team={team} spec={spec === null ? null : specToCheck} specCheck={check} plan={check?.spec == null ? undefined : planned.data} startStep={startStep} isOwn={isOwn} isUpdating={isUpdating} />
        <WhatIfPanel
          gpus={info.gpus}
          hardware={hardware}
          onChange={setHardware}
          found={hardware === null ? undefined : elsewhere.data}
          error={hardware === null ? null : elsewhere.error}
          formProblems={check?.problems ?? []}
          labels={labels}
          isUpdating={elsewhere.isFetching}
        />
      </RunFormSummary>
    </form>
  );
}

/** Whether the tensors of a model depend on the field. */
function shapesModel(path: string): boolean {
  return path.startsWith("model.") && !path.startsWith("model.rope_scaling");
}

function hasName(spec: SpecJson): boolean {
  return (spec["name"] ?? "") !== "";
}

/** The spec with a placeholder as its name. Figures do not depend on the name, so typing it must not change them. */
function withoutName(spec: SpecJson): SpecJson {
  return { ...spec, name: PLACEHOLDER_NAME };
}

function isEmpty(values: SpecValues, field: string): boolean {
  return (values[field] ?? "") === "" || field === "";
}
