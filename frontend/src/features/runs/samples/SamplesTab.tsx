import { useInfiniteQuery } from "@tanstack/react-query";
import { ChevronLeft, ChevronRight } from "lucide-react";
import { useMemo } from "react";
import type { Run, RunSamples } from "@/api/types";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorState } from "@/components/ErrorState";
import { Field } from "@/components/Field";
import { Select } from "@/components/Select";
import { Skeleton } from "@/components/Skeleton";
import { SampleGrid } from "@/features/runs/samples/SampleGrid";
import { samplesAt, type SampleSearch } from "@/features/runs/samples/sampleSteps";
import { samplesQuery } from "@/features/runs/samples/samplesQuery";
import type { Column } from "@/lib/charts/series";
import { count } from "@/lib/format";

interface Props {
  team: string;
  run: Run;
  live: boolean;
  /** Validation losses by step. */
  losses: Column | undefined;
  view: SampleSearch;
  onView: (view: SampleSearch) => void;
}

/** The model's continuation of each prompt: one validation at a time, or two side by side. */
export function SamplesTab({ team, run, live, losses, view, onView }: Props) {
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(samplesQuery(team, run.id, live));
  const written = useMemo(() => data?.pages.flatMap(({ items }) => items) ?? [], [data]);
  if (data === undefined) return error === null ? <Skeleton rows={3} height={80} /> : <ErrorState error={error} onRetry={() => void refetch()} />;
  const current = samplesAt(written, view.sampled);
  if (current === undefined) {
    return (
      <EmptyState title="No samples yet.">
        <p>
          {live
            ? `The model continues its prompts after each validation, every ${count(run.spec.validation.every_steps)} steps.`
            : "The run ended before its first validation."}
        </p>
      </EmptyState>
    );
  }
  const beside = view.beside === undefined ? undefined : samplesAt(written, view.beside);
  const shown = beside === undefined || beside.step === current.step ? [current] : [current, beside];
  const index = written.indexOf(current);
  const go = (to: RunSamples | undefined) => {
    if (to !== undefined) onView({ sampled: to === written[0] ? undefined : to.step });
  };
  return (
    <div className="flex flex-col gap-3">
      <div className="flex flex-wrap items-end gap-3">
        <div className="flex items-end gap-1">
          <Button aria-label="Earlier validation" className="max-tablet:w-11" disabled={index >= written.length - 1} onClick={() => { go(written[index + 1]); }}>
            <ChevronLeft aria-hidden size={16} /> <span className="max-tablet:sr-only">Earlier</span>
          </Button>
          <StepSelect
            label="Samples after"
            written={written}
            losses={losses}
            value={current.step}
            onChange={(step) => {
              go(written.find((one) => one.step === step));
            }}
          />
          <Button aria-label="Later validation" className="max-tablet:w-11" disabled={index <= 0} onClick={() => { go(written[index - 1]); }}>
            <span className="max-tablet:sr-only">Later</span> <ChevronRight aria-hidden size={16} />
          </Button>
        </div>
        <StepSelect
          label="Compare with"
          none="nothing"
          written={written.filter((one) => one !== current)}
          losses={losses}
          value={shown[1]?.step}
          onChange={(step) => {
            onView({ beside: step });
          }}
        />
        {hasNextPage && (
          <Button variant="quiet" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            Load earlier validations
          </Button>
        )}
      </div>
      <SampleGrid shown={shown} losses={losses} />
      <p className="text-small text-soft">
        Up to {count(run.spec.validation.sample_tokens)} tokens at temperature {run.spec.validation.temperature}. Generating samples does not affect the training.
      </p>
    </div>
  );
}

interface StepSelectProps {
  label: string;
  /** Label of the option without a step, if there is one. */
  none?: string;
  written: readonly RunSamples[];
  losses: Column | undefined;
  value: number | undefined;
  onChange: (step: number | undefined) => void;
}

function StepSelect({ label, none, written, losses, value, onChange }: StepSelectProps) {
  return (
    <Field label={label}>
      {(control) => (
        <Select
          {...control}
          value={value ?? ""}
          onChange={(event) => {
            onChange(event.target.value === "" ? undefined : Number(event.target.value));
          }}
        >
          {none !== undefined && <option value="">{none}</option>}
          {written.map(({ step }) => (
            <option key={step} value={step}>
              {optionText(losses, step)}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}

/** `step 30, loss 3.781`: the step and its validation loss, if the chart's points include it. Short, so that phones show all of it. */
function optionText(losses: Column | undefined, step: number): string {
  const value = losses?.values[losses.steps.indexOf(step)];
  return `step ${count(step)}${value === undefined ? "" : `, loss ${value.toFixed(3)}`}`;
}
