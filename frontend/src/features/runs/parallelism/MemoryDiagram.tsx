import type { PlannedMemory, RunPlan } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { bytes } from "@/lib/format";

const MEMORY_PARTS = ["weights", "copies", "gradients", "optimizer", "activations", "gathered", "loss", "transfers", "snapshot"] as const;
type MemoryPart = (typeof MEMORY_PARTS)[number];

/** Memory per pipeline rank by part, as bars on one scale and in numbers, compared with the smallest slot. */
export function MemoryDiagram({ plan }: { plan: RunPlan }) {
  const { memory, slot_bytes: slot = null, warnings } = plan;
  const max = Math.max(1, slot ?? 0, ...memory.map(({ total }) => total));
  const parts = MEMORY_PARTS.filter((part) => memory.some((one) => one[part] > 0));
  return (
    <figure className="flex min-w-0 flex-col gap-2">
      <figcaption className="text-small text-soft">Memory per rank: tensors only; a GPU needs a few GiB more. The parts are those of the rank that needs the most</figcaption>
      <ul className="flex flex-col gap-2">
        {memory.map((one) => (
          <li key={one.rank} className="flex flex-col gap-1">
            <span className="flex justify-between gap-2">
              <span className="text-small">{memory.length > 1 ? `pipeline rank ${one.rank}` : "each rank"}</span>
              <span>
                <Bytes value={one.total} />
                {slot !== null && <span className="text-small text-soft"> of {bytes(slot)}</span>}
                {one.host > 0 && <span className="text-small text-soft"> and {bytes(one.host)} of the node&apos;s memory</span>}
              </span>
            </span>
            <span aria-hidden className="relative flex h-2.5 bg-raised">
              {parts.map((part) => (
                <span key={part} style={{ width: `${(100 * one[part]) / max}%`, background: colour(part) }} />
              ))}
              {slot !== null && slot < max && (
                <span className="absolute -inset-y-1 border-l-2 border-text" style={{ left: `${(100 * slot) / max}%` }} />
              )}
            </span>
          </li>
        ))}
      </ul>
      {warnings.map((warning) => (
        <p key={warning} className="text-small text-warn">
          {warning}
        </p>
      ))}
      <Legend memory={memory} parts={parts} />
    </figure>
  );
}

/** Each part with its size on the rank that needs most. */
function Legend({ memory, parts }: { memory: readonly PlannedMemory[]; parts: readonly MemoryPart[] }) {
  const largest = memory.reduce((max, one) => (one.total > max.total ? one : max));
  return (
    <dl className="flex flex-wrap gap-x-4 gap-y-1 text-small">
      {parts.map((part) => (
        <div key={part} className="flex items-center gap-1.5">
          <span aria-hidden className="size-2.5" style={{ background: colour(part) }} />
          <dt className="text-soft">{part}</dt>
          <dd>{bytes(largest[part])}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The snapshot is grey, because the charts have eight colors. */
function colour(part: MemoryPart): string {
  return part === "snapshot" ? "var(--color-soft)" : `var(--color-series-${MEMORY_PARTS.indexOf(part) + 1})`;
}
