import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { errorMessage } from "@/api/errors";
import type { RunEstimate, RunPlan, SpecCheck } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { Meter } from "@/components/Meter";
import { Quantity } from "@/components/Quantity";
import { Time } from "@/components/Time";
import type { SpecJson } from "@/features/runs/queries";
import { largestNeed, slotText } from "@/features/runs/form/startReadiness";
import { automaticValue } from "@/features/runs/spec/automaticValues";
import { estimateQuery } from "@/features/runs/recipes/recipeQueries";
import { count, duration, flopParts, hoursText, rate, short } from "@/lib/format";
import { useLatest } from "@/lib/hooks/useLatest";

interface Props {
  team: string;
  /** The edited spec; null while it cannot be parsed. */
  spec: SpecJson | null;
  specCheck: SpecCheck | undefined;
  /** The plan, which has the memory of the slots. */
  plan: RunPlan | undefined;
  /** The step that a fork continues from. */
  startStep: number;
  /** Whether the spec is the user's: figures of the initial one do not stay while theirs is invalid. */
  isOwn: boolean;
  /** Check and plan are those of an earlier configuration. */
  isUpdating: boolean;
}

/**
 * The estimated cost of the run, and where the numbers come from. What is unknown is not guessed, and a run that fits no node
 * has no time. Figures of an earlier configuration keep their place, but are hidden until the new ones arrive. While a field is
 * invalid, those of the configuration before stay, and are said to be its figures.
 */
export function RunEstimatePanel({ team, spec, specCheck, plan: currentPlan, startStep, isOwn, isUpdating }: Props) {
  const current = spec === null || specCheck?.spec == null ? undefined : specCheck;
  const ownCheck = useLatest(isOwn ? current : undefined);
  const ownPlan = useLatest(isOwn ? currentPlan : undefined);
  const check = current ?? ownCheck;
  const plan = currentPlan ?? ownPlan;
  const isOutdated = check !== undefined && current === undefined;
  const knownSpec = check?.spec ?? null;
  const hasNoStepsLeft = knownSpec !== null && knownSpec.schedule.steps <= startStep;
  // The name does not matter, so the estimate stays while it is typed.
  const estimated = hasNoStepsLeft || knownSpec === null ? null : { ...knownSpec, name: "estimate" };
  const { data, error, isPlaceholderData } = useQuery({ ...estimateQuery(team, estimated, startStep), enabled: estimated !== null });
  const estimate = estimated === null ? undefined : data;
  const isHidden = isUpdating || (estimated !== null && isPlaceholderData);
  const { global_sequences: sequences, sequence_tokens: length } = check?.spec?.batch ?? {};
  const step = sequences === undefined || length === undefined ? undefined : sequences * length;
  const steps = check?.spec?.schedule.steps;
  const fits = plan?.too_large == null;
  const { nodes = 1, slots_per_node: slots } = check?.spec?.resources ?? {};
  const flops = flopParts(estimate?.flops ?? 0);
  const memory = estimate?.memory_bytes ?? (plan === undefined ? undefined : largestNeed(plan));
  const vocabulary = check?.spec == null ? undefined : (check.spec.data.tokenizer.vocabulary ?? automaticValue(check.spec, "data.tokenizer.vocabulary"));
  const parameters = estimate?.parameters ?? check?.parameters;
  return (
    <section aria-label="Estimate" aria-busy={isHidden} className="panel">
      {isOutdated && <p className="border-b px-4 py-2 text-small">For the last configuration that could be estimated. Fix the problems to update it.</p>}
      <dl inert={isHidden} className={`figures divide-y ${isOutdated ? "[&_dd]:text-soft" : ""}`}>
        <EstimateRow name="time" note={estimate && fits && <TimeSource estimate={estimate} team={team} />}>
          {fits ? <EstimatedTime estimate={estimate} /> : <span className="text-bad">does not fit</span>}
        </EstimateRow>
        <EstimateRow name="memory" note={memory !== undefined && <MemoryNote bytes={memory} plan={plan} />}>
          {memory === undefined ? "–" : <Main><Bytes value={memory} /></Main>}
        </EstimateRow>
        <EstimateRow name="parameters" note={vocabulary !== undefined && `with a vocabulary of ${count(vocabulary)} tokens`}>
          {parameters === null || parameters === undefined ? "–" : short(parameters)}
        </EstimateRow>
        <EstimateRow name="tokens" note={step === undefined ? undefined : `${count(step)} per step`}>
          {step === undefined || steps === undefined ? "–" : short(step * Math.max(0, steps - startStep))}
        </EstimateRow>
        <EstimateRow name="compute">{estimate === undefined ? "–" : <Quantity value={flops[0]} unit={flops[1]} />}</EstimateRow>
        <EstimateRow name="slots">{slots === undefined ? "–" : count(nodes * slots)}</EstimateRow>
        {estimate !== undefined && estimate.host_bytes > 0 && (
          <EstimateRow name="node memory" note="per node, for checkpoints and offloaded tensors">
            <Bytes value={estimate.host_bytes} />
          </EstimateRow>
        )}
        <EstimateRow name="checkpoints" note={estimate && <StorageNote estimate={estimate} />}>
          {estimate === undefined ? "–" : <Bytes value={estimate.stored_bytes} />}
        </EstimateRow>
        <EstimateRow name="slot-hours">{estimate === undefined || slots === undefined || !fits ? "–" : slotHours(estimate, nodes * slots)}</EstimateRow>
      </dl>
      {hasNoStepsLeft && <p className="border-t px-4 py-2 text-small text-soft">No estimate: the fork starts at step {count(startStep)}, so it needs more steps than that.</p>}
      {estimated !== null && error !== null && <p className="border-t px-4 py-2 text-small text-soft">No estimate: {errorMessage(error)}</p>}
    </section>
  );
}

function EstimateRow({ name, note, children }: { name: string; note?: ReactNode; children: ReactNode }) {
  return (
    <div className="flex flex-wrap items-baseline justify-between gap-x-4 px-4 py-1.5">
      <dt className="text-soft">{name}</dt>
      <dd className="text-right">{children}</dd>
      {note !== undefined && note !== false && <dd className="w-full text-small text-soft">{note}</dd>}
    </div>
  );
}

function EstimatedTime({ estimate }: { estimate: RunEstimate | undefined }) {
  if (estimate === undefined) return <span className="text-soft">–</span>;
  if (estimate.seconds !== null) return <Main>{duration(estimate.seconds)}</Main>;
  const atPeak = secondsAtPeak(estimate);
  return atPeak === null ? <span className="text-soft">not measured yet</span> : <Main>over {duration(atPeak)}</Main>;
}

/** The time at the fastest node's peak; null if it is unknown, or too short to say anything. */
function secondsAtPeak({ seconds_at_peak: atPeak }: RunEstimate): number | null {
  return atPeak == null || atPeak < 1 ? null : atPeak;
}

const SECONDS_PER_HOUR = 3_600;
/** Shorter times are not a useful lower bound. */
const MIN_HOURS = 0.01;

/** Measured, or at the fastest node's peak, as the time is. */
function slotHours(estimate: RunEstimate, slots: number): string {
  if (estimate.slot_hours !== null) return hoursText(estimate.slot_hours);
  const atPeak = ((secondsAtPeak(estimate) ?? 0) * slots) / SECONDS_PER_HOUR;
  return atPeak < MIN_HOURS ? "–" : `over ${hoursText(atPeak)}`;
}

/** The process itself needs memory too. */
const NEED_TEXT = "Estimated for the tensors of the rank that needs the most.";

/** How much of its slot the rank that needs the most memory takes. */
function MemoryNote({ bytes: needed, plan }: { bytes: number; plan: RunPlan | undefined }) {
  const slot = plan?.slot_bytes ?? null;
  if (plan === undefined || slot === null) return NEED_TEXT;
  return (
    <span className="flex flex-col gap-1">
      <Meter fraction={needed / slot} label="Memory of the rank that needs the most" className={`w-full ${needed > slot ? "[&>div]:bg-bad" : ""}`} />
      <span>
        {NEED_TEXT} Its slot has {slotText(plan, slot)}.
      </span>
    </span>
  );
}

function Main({ children }: { children: ReactNode }) {
  return <span className="text-title font-semibold">{children}</span>;
}

/** Where the time estimate comes from. */
function TimeSource({ estimate, team }: { estimate: RunEstimate; team: string }) {
  const { measured } = estimate;
  if (measured === null) {
    const unmeasured = "No run with this model and batch has been measured on this kind of node.";
    return secondsAtPeak(estimate) === null ? unmeasured : `At the fastest node's peak. ${unmeasured}`;
  }
  return (
    <>
      measured: {rate(measured.tokens_per_second)} tokens/s in{" "}
      <Link
        to="/$team/runs/$runId/$tab"
        params={{ team, runId: measured.run, tab: "overview" }}
        className="text-accent underline underline-offset-2"
      >
        {measured.name}
      </Link>{" "}
      on {measured.node}, <Time at={measured.when} />
    </>
  );
}

/** Storage at the end, compared with the team's current use. */
function StorageNote({ estimate }: { estimate: RunEstimate }) {
  return (
    <>
      <Bytes value={estimate.checkpoint_bytes} /> each; the team has <Bytes value={estimate.team_checkpoint_bytes} /> of checkpoints now
    </>
  );
}
