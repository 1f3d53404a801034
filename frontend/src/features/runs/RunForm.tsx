import { useMutation, useQuery, useSuspenseQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo, useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { Dataset, Problem, Run, Tokenizer } from "@/api/types";
import { Button } from "@/components/Button";
import { Segmented } from "@/components/Segmented";
import { Time } from "@/components/Time";
import { JsonEditor } from "@/features/runs/JsonEditor";
import { LayoutPlan } from "@/features/runs/LayoutPlan";
import { createRun, specQuery, verdictsQuery, type SpecJson } from "@/features/runs/queries";
import { RunFormSection } from "@/features/runs/RunFormSection";
import { RunFormSummary } from "@/features/runs/RunFormSummary";
import { dropDraft, restored, storeDraft, storedDraft } from "@/features/runs/draft";
import { randomId } from "@/lib/randomId";
import { sectionsOf, specOf, valuesOf, type Json, type JsonSchema, type SpecValues } from "@/lib/specForm";
import { useDebounced } from "@/lib/useDebounced";

interface Props {
  team: string;
  datasets: readonly Dataset[];
  tokenizers: readonly Tokenizer[];
  /** Fields that the way here has filled in. */
  start: SpecValues;
  onCreated: (run: Run) => void;
}

const VALIDATE_AFTER_MS = 300;
const STAND_IN = "unnamed";

/** The configuration of a new run, as a form or as JSON, checked by the API while it is written. */
export function RunForm({ team, datasets, tokenizers, start, onCreated }: Props) {
  const { data: info } = useSuspenseQuery(specQuery);
  const sections = useMemo(() => sectionsOf(info.run_spec as JsonSchema), [info]);
  const fields = useMemo(() => sections.flatMap((section) => section.fields), [sections]);
  const [draft, setDraft] = useState(() => storedDraft(team));
  const fresh = { "data.dataset": datasets[0]?.id ?? "", ...start };
  const kept = restored(draft, start);
  const [values, setValues] = useState<SpecValues>({ ...fresh, ...kept, ...start });
  const [json, setJson] = useState<string | null>(null);
  const [stay, setStay] = useState<string | null>(null);
  const [asked, setAsked] = useState(false);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [key, setKey] = useState(randomId);

  const parsed = useMemo(() => (json === null ? specOf(values, fields) : parseSpec(json)), [json, values, fields]);
  const spec = useDeferredValue(useDebounced(parsed, VALIDATE_AFTER_MS));
  // A form without a name is checked under a stand-in, so that its size is known before it is named.
  const probe = json === null ? { name: STAND_IN, ...spec } : (spec ?? {});
  const { data: verdicts } = useQuery({ ...verdictsQuery(team, probe), enabled: spec !== null });
  const submission = useMutation({
    mutationFn: (asSent: SpecJson) => createRun(team, asSent, key),
    onSuccess: (run) => {
      dropDraft(team);
      onCreated(run);
    },
  });

  const refused = submission.error instanceof ApiError ? submission.error.problems : [];
  const unnamed = json === null && missing(values, "name") ? [{ field: "name", message: "This field is required." }] : [];
  const problems = refused.length > 0 ? refused : [...unnamed, ...(verdicts?.problems ?? [])];
  const shown = asked || json !== null ? problems : problems.filter((problem) => !isEarly(problem));

  /** Whether it only says what is yet to be filled in, or speaks of a form that nobody has touched. */
  function isEarly({ field }: Problem): boolean {
    if (touched.has(field) || !missing(values, field)) return false;
    return touched.size === 0 || fields.some(({ path, required }) => required && path === field);
  }

  function change(changed: SpecValues): void {
    // A source belongs to the kind that it was chosen for.
    const next = { ...values, ...("data.tokenizer.kind" in changed ? { "data.tokenizer.source": "" } : {}), ...changed };
    setValues(next);
    setTouched(new Set([...touched, ...Object.keys(changed)]));
    storeDraft(team, next);
    renew();
  }

  function beginAnew(): void {
    dropDraft(team);
    setDraft(null);
    setValues(fresh);
    setTouched(new Set());
    setJson(null);
    renew();
  }

  /** What is written now is another request than the one that was sent. */
  function renew(): void {
    setKey(randomId());
    submission.reset();
  }

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    setAsked(true);
    if (parsed !== null && unnamed.length === 0) submission.mutate(parsed);
  }

  function show(mode: "form" | "JSON"): void {
    setStay(null);
    if (mode === "JSON") {
      setJson(JSON.stringify(specOf(values, fields), null, 2));
      return;
    }
    const back = json === null ? null : parseSpec(json);
    if (back === null) {
      setStay("This is not JSON yet, so the form cannot show it. Mend it first.");
      return;
    }
    const { values: read, strangers } = valuesOf(back, fields);
    if (strangers.length > 0) {
      setStay(`The form has no field for ${strangers.join(", ")}. Remove or rename it first.`);
      return;
    }
    setValues(read);
    storeDraft(team, read);
    setJson(null);
  }

  return (
    <form onSubmit={submit} noValidate className="grid grid-cols-[minmax(0,1fr)_320px] items-start gap-6 max-desk:grid-cols-1">
      <div className="flex min-w-0 flex-col gap-3">
        <div className="flex items-center gap-3">
          <Segmented label="How to write it" value={json === null ? "form" : "JSON"} options={["form", "JSON"]} onChange={show} />
          {stay !== null && <p role="alert" className="text-small text-bad">{stay}</p>}
        </div>
        {draft !== null && Object.keys(kept).some((path) => path !== "data.dataset") && (
          <p role="status" className="flex flex-wrap items-baseline gap-x-3">
            <span>
              Your draft of <Time at={draft.at} /> is restored.
            </span>
            <Button look="quiet" onClick={beginAnew}>
              Begin anew
            </Button>
          </p>
        )}
        {json === null ? (
          sections.map((section) => (
            <RunFormSection
              key={section.key}
              section={section}
              values={values}
              problems={shown}
              datasets={datasets}
              tokenizers={tokenizers}
              presets={info.presets}
              onChange={change}
              below={section.key === "parallelism" && spec !== null ? <LayoutPlan team={team} spec={probe} /> : undefined}
            />
          ))
        ) : (
          <JsonEditor
            text={json}
            onChange={(text) => {
              setJson(text);
              renew();
            }}
          />
        )}
      </div>
      <RunFormSummary
        verdicts={verdicts}
        problems={shown}
        linked={json === null}
        notJson={parsed === null}
        busy={submission.isPending}
        error={submission.error}
      />
    </form>
  );
}

function missing(values: SpecValues, field: string): boolean {
  return (values[field] ?? "") === "" || field === "";
}

function parseSpec(text: string): Record<string, Json> | null {
  try {
    const value = JSON.parse(text) as Json;
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
