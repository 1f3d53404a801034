import type { ReactNode } from "react";
import { ApiError, errorMessage } from "@/api/errors";
import type { GpuModel, Problem, WhatIf } from "@/api/types";
import { Field } from "@/components/Field";
import { Meter } from "@/components/Meter";
import { Select } from "@/components/Select";
import { GPU_COUNTS, gpuLabel, hardwareText, NODE_COUNTS, type Hardware } from "@/features/runs/whatIf/whatIf";
import { withFieldLabels } from "@/lib/fieldLabel";
import { bytes, duration } from "@/lib/format";

interface Props {
  gpus: readonly GpuModel[];
  /** Null: plan for the joined nodes. */
  hardware: Hardware | null;
  onChange: (hardware: Hardware | null) => void;
  found: WhatIf | undefined;
  error: Error | null;
  /** What is wrong with the form, whatever the hardware. */
  formProblems: readonly Problem[];
  /** Of the form's fields, by path. */
  labels: ReadonlyMap<string, string>;
  isUpdating: boolean;
}

const FIRST_COUNT = 8;

/** The memory and time that the run would need on hardware that the team does not have. */
export function WhatIfPanel({ gpus, hardware, onChange, found, error, formProblems, labels, isUpdating }: Props) {
  return (
    <section aria-label="Other hardware" aria-busy={isUpdating} className="panel flex flex-col gap-2 px-4 py-3">
      <Field label="What if it ran on other hardware?">
        {(control) => (
          <Select
            {...control}
            value={hardware?.gpu ?? ""}
            onChange={(event) => {
              const gpu = event.target.value;
              onChange(gpu === "" ? null : { gpus: FIRST_COUNT, nodes: 1, ...hardware, gpu });
            }}
          >
            <option value="">only your nodes</option>
            {gpus.map((gpu) => (
              <option key={gpu.name} value={gpu.name}>
                {gpuLabel(gpu)}
              </option>
            ))}
          </Select>
        )}
      </Field>
      {hardware !== null && (
        <>
          <div className="grid grid-cols-2 gap-2">
            <CountSelect label="GPUs per node" counts={GPU_COUNTS} value={hardware.gpus} onChange={(count) => { onChange({ ...hardware, gpus: count }); }} />
            <CountSelect label="Nodes" counts={NODE_COUNTS} value={hardware.nodes} onChange={(count) => { onChange({ ...hardware, nodes: count }); }} />
          </div>
          {error !== null ? <p className="text-small text-bad">{withFieldLabels(problemOf(error, formProblems), labels)}</p> : found !== undefined && <Answer found={found} labels={labels} />}
        </>
      )}
    </section>
  );
}

function Answer({ found, labels }: { found: WhatIf; labels: ReadonlyMap<string, string> }) {
  const needed = Math.max(...found.plan.memory.map(({ total }) => total));
  const { memory_bytes: memory } = found.gpu;
  const why = found.plan.too_large;
  return (
    <div className="flex flex-col gap-2">
      <p>
        <span className={`font-medium ${why == null ? "text-good" : "text-bad"}`}>{why == null ? "Fits" : "Does not fit"}</span>{" "}
        <span className="text-soft">{hardwareText(found)}</span>
      </p>
      <Line name="memory per GPU">
        {bytes(needed)} of {bytes(memory)}
      </Line>
      <Meter fraction={needed / memory} label="Memory of the fullest GPU" className={`w-full ${why == null ? "" : "[&>div]:bg-bad"}`} />
      {why == null ? <Time found={found} /> : <p className="text-small">{withFieldLabels(why, labels)}</p>}
    </div>
  );
}

/** How long a run that fits takes. */
function Time({ found: { seconds, assumed_mfu: mfu } }: { found: WhatIf }) {
  return (
    <>
      <Line name="time">{seconds === null ? <span className="text-soft">unknown</span> : seconds < 60 ? "less than a minute" : `about ${duration(seconds)}`}</Line>
      <p className="text-small text-soft">
        {seconds === null ? "The vendor states no peak for this precision." : `Estimated, not measured: assumes ${String(Math.round(100 * mfu))} % of the vendor's peak and no waiting for data.`}
      </p>
    </>
  );
}

function Line({ name, children }: { name: string; children: ReactNode }) {
  return (
    <p className="flex justify-between gap-4">
      <span className="text-soft">{name}</span>
      <span className="text-right">{children}</span>
    </p>
  );
}

interface CountSelectProps {
  label: string;
  counts: readonly number[];
  value: number;
  onChange: (count: number) => void;
}

function CountSelect({ label, counts, value, onChange }: CountSelectProps) {
  return (
    <Field label={label}>
      {(control) => (
        <Select
          {...control}
          value={value}
          onChange={(event) => {
            onChange(Number(event.target.value));
          }}
        >
          {counts.map((count) => (
            <option key={count} value={count}>
              {count}
            </option>
          ))}
        </Select>
      )}
    </Field>
  );
}

/** The first rule that the spec breaks on this hardware. Messages about layouts say what to change. */
function problemOf(error: Error, formProblems: readonly Problem[]): string {
  if (!(error instanceof ApiError)) return errorMessage(error);
  const isOfForm = ({ field, message }: Problem) => formProblems.some((one) => one.field === field && one.message === message);
  const own = error.problems.find((problem) => !isOfForm(problem));
  if (own === undefined && error.problems.length > 0) return `Fix the ${error.problems.length === 1 ? "problem" : "problems"} of the form first.`;
  return own?.message ?? error.message;
}
