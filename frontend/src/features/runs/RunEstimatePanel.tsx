import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { sentenceOf } from "@/api/errors";
import type { RunEstimate, Verdicts } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { Quantity } from "@/components/Quantity";
import { Time } from "@/components/Time";
import type { SpecJson } from "@/features/runs/queries";
import { estimateQuery } from "@/features/runs/recipeQueries";
import { count, decimal, duration, powerOfTen, rate, short } from "@/lib/format";

interface Props {
  team: string;
  /** What is written; null while nobody could read it. */
  spec: SpecJson | null;
  verdicts: Verdicts | undefined;
  /** The step that a fork goes on from. */
  beginStep: number;
}

/** What the run would come to, and how that is known. Numbers that are not known are not guessed. */
export function RunEstimatePanel({ team, spec, verdicts, beginStep }: Props) {
  // What was found valid is asked about, and not what is written by now: that may be neither read nor right yet.
  const valid = spec !== null && verdicts?.valid === true ? (verdicts.spec ?? null) : null;
  const isOver = valid !== null && valid.schedule.steps <= beginStep;
  const checked = isOver ? null : valid;
  const { data, error, isPlaceholderData } = useQuery({ ...estimateQuery(team, checked, beginStep), enabled: checked !== null });
  const estimate = checked === null ? undefined : data;
  const { global_sequences: sequences, sequence_tokens: length } = verdicts?.spec?.batch ?? {};
  const step = sequences === undefined || length === undefined ? undefined : sequences * length;
  const steps = verdicts?.spec?.schedule.steps;
  const { nodes = 1, slots_per_node: slots } = verdicts?.spec?.resources ?? {};
  const parameters = estimate?.parameters ?? verdicts?.parameters;
  return (
    <section aria-label="Estimate" aria-busy={isPlaceholderData} className="panel">
      <dl className="divide-y">
        <Fact name="parameters">{parameters === null || parameters === undefined ? "–" : short(parameters)}</Fact>
        <Fact name="tokens" note={step === undefined ? undefined : `${count(step)} a step`}>
          {step === undefined || steps === undefined ? "–" : short(step * Math.max(0, steps - beginStep))}
        </Fact>
        <Fact name="arithmetic" note={estimate && `${powerOfTen(estimate.flops)} FLOP`}>
          {estimate === undefined ? "–" : <Quantity value={decimal(estimate.petaflop_days)} unit="petaFLOP/s-days" />}
        </Fact>
        <Fact name="slots">{slots === undefined ? "–" : count(nodes * slots)}</Fact>
        <Fact name="memory" note={estimate && "of the fullest rank, by formulas"}>
          {estimate === undefined ? "–" : <Bytes value={estimate.memory_bytes} />}
        </Fact>
        {estimate !== undefined && estimate.host_bytes > 0 && (
          <Fact name="node memory" note="on each node, for what is offloaded to it">
            <Bytes value={estimate.host_bytes} />
          </Fact>
        )}
        <Fact name="checkpoints" note={estimate && <Stored estimate={estimate} />}>
          {estimate === undefined ? "–" : <Bytes value={estimate.stored_bytes} />}
        </Fact>
        <Fact name="time" note={estimate && <Known estimate={estimate} team={team} />}>
          {estimate === undefined ? "–" : timeOf(estimate)}
        </Fact>
        <Fact name="slot-hours">{estimate?.slot_hours == null ? "–" : decimal(estimate.slot_hours)}</Fact>
      </dl>
      {estimate !== undefined && isPlaceholderData && (
        <p className="border-t px-4 py-2 text-small text-soft">Of what stood here before; the new numbers are on their way.</p>
      )}
      {isOver && <p className="border-t px-4 py-2 text-small text-soft">No estimate: it goes on from step {count(beginStep)}, so it needs more steps.</p>}
      {checked !== null && error !== null && <p className="border-t px-4 py-2 text-small text-soft">No estimate: {sentenceOf(error)}</p>}
    </section>
  );
}

function Fact({ name, note, children }: { name: string; note?: ReactNode; children: ReactNode }) {
  return (
    <div className="flex flex-wrap justify-between gap-x-4 px-4 py-1.5">
      <dt className="text-soft">{name}</dt>
      <dd className="text-right">{children}</dd>
      {note !== undefined && <dd className="w-full text-small text-soft">{note}</dd>}
    </div>
  );
}

function timeOf({ seconds }: RunEstimate): string {
  return seconds === null ? "not measured yet" : duration(seconds);
}

/** How the time is known. */
function Known({ estimate: { measured }, team }: { estimate: RunEstimate; team: string }) {
  if (measured === null) {
    return "No run of this model and batch has trained on such a node, so nobody knows how long it takes.";
  }
  return (
    <>
      as measured: {rate(measured.tokens_per_second)} tokens/s in{" "}
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

/** What is stored in the end, beside what is; no limit holds for it, and that is said. */
function Stored({ estimate }: { estimate: RunEstimate }) {
  return (
    <>
      <Bytes value={estimate.checkpoint_bytes} /> each; the team has <Bytes value={estimate.team_checkpoint_bytes} /> of checkpoints now. Only the disk bounds
      them: the storage limit is for uploaded files.
    </>
  );
}
