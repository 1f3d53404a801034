import type { HardwareUse } from "@/api/types";
import { Meter } from "@/components/Meter";
import { bytes, percent } from "@/lib/format";

/** The current use of a node's CPU, memory and disk. */
export function NodeUse({ name, use }: { name: string; use: HardwareUse }) {
  return (
    <dl className="mt-3 grid max-w-3xl grid-cols-3 gap-x-6 gap-y-2 text-small max-tablet:grid-cols-1">
      <Item node={name} label="CPU" fraction={use.cpu_utilization} text={`${percent(use.cpu_utilization)} %`} />
      <Item node={name} label="memory" fraction={use.memory_bytes / use.memory_total_bytes} text={`${bytes(use.memory_bytes)} of ${bytes(use.memory_total_bytes)}`} />
      <Item node={name} label="disk" fraction={use.disk_bytes / use.disk_total_bytes} text={`${bytes(use.disk_bytes)} of ${bytes(use.disk_total_bytes)}`} />
    </dl>
  );
}

interface ItemProps {
  node: string;
  label: string;
  fraction: number;
  text: string;
}

function Item({ node, label, fraction, text }: ItemProps) {
  return (
    <div className="grid grid-cols-[auto_1fr] gap-x-3 gap-y-1">
      <dt className="text-soft">{label}</dt>
      <dd className="text-right whitespace-nowrap">{text}</dd>
      <dd className="col-span-2">
        <Meter fraction={Number.isFinite(fraction) ? fraction : 0} label={`${label} of ${node}`} className="w-full" />
      </dd>
    </div>
  );
}
