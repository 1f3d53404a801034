import { Link } from "@tanstack/react-router";
import type { GpuUse } from "@/api/types";
import { Meter } from "@/components/Meter";
import { StatePill } from "@/components/StatePill";
import { bytes } from "@/lib/format";
import { gpuUseText, slotLabel, type Slot } from "@/features/nodes/nodeSlots";

interface Props {
  slot: Slot;
  /** Whether a run could be placed on it. */
  isUsable: boolean;
  memory: number | undefined;
  /** The current use of a GPU, if its driver reports it. */
  use: GpuUse | undefined;
}

/** One GPU or CPU slot, and the run on it. */
export function SlotTile({ slot, isUsable, memory, use }: Props) {
  const { run } = slot;
  return (
    <li className={`flex min-w-0 flex-col justify-between rounded-box border p-2 ${run === null ? "border-dashed tablet:min-h-20" : "min-h-20 border-control bg-raised"}`}>
      <span className="flex justify-between gap-2 text-small text-soft">
        {slotLabel(slot)}
        {memory !== undefined && <span>{bytes(memory)}</span>}
      </span>
      {use !== undefined && <GpuUseMeters slot={slot} use={use} memory={memory} />}
      {run === null ? (
        <span className="text-small text-soft">{isUsable ? "free" : "unavailable"}</span>
      ) : (
        <span className="min-w-0">
          <Link
            to="/$team/runs/$runId/$tab"
            params={{ team: run.team, runId: run.run, tab: "overview" }}
            className="block truncate font-medium hover:text-accent"
            title={`${run.name}, of ${run.team}`}
          >
            {run.name}
          </Link>
          <span className="flex items-center justify-between gap-2 text-small">
            <StatePill state={run.state} />
            <span className="truncate text-soft">{run.team}</span>
          </span>
        </span>
      )}
    </li>
  );
}

function GpuUseMeters({ slot, use, memory }: { slot: Slot; use: GpuUse; memory: number | undefined }) {
  const { utilization, memory_bytes: usedMemory } = use;
  return (
    <span className="my-1 flex flex-col gap-1 text-small">
      {gpuUseText(use)}
      {typeof utilization === "number" && <Meter fraction={utilization} label={`Utilization of ${slotLabel(slot)}`} className="w-full" />}
      {typeof usedMemory === "number" && memory !== undefined && <Meter fraction={usedMemory / memory} label={`Memory of ${slotLabel(slot)}`} className="w-full" />}
    </span>
  );
}
