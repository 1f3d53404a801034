import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Node } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { StateIcon, type Shape } from "@/components/StateIcon";
import { drainNode, nodesQuery } from "@/features/nodes/queries";
import { SlotTile } from "@/features/nodes/SlotTile";
import { bytes, duration, plural, secondsBetween } from "@/lib/format";
import { slotsOf } from "@/lib/nodeSlots";

interface Props {
  node: Node;
  now: number;
}

/** One machine: how it is, its slots one by one, and whether it takes new runs. */
export function NodeCard({ node, now }: Props) {
  const client = useQueryClient();
  const drain = useMutation({
    mutationFn: () => drainNode(node.id, !node.draining),
    onSuccess: () => client.invalidateQueries({ queryKey: nodesQuery.queryKey }),
  });
  const slots = slotsOf(node);
  const { shape, word, color } = lookOf(node);
  return (
    <li className="panel p-4">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <h2 className="font-semibold">{node.name}</h2>
        <span className={`inline-flex items-center gap-1.5 ${color}`}>
          <StateIcon shape={shape} />
          {word}
        </span>
        <span className="text-small text-soft">
          {machineWords(node)} · {node.last_heartbeat ? `heard ${duration(secondsBetween(node.last_heartbeat, now))} ago` : "never heard"}
        </span>
        <Button
          className="ml-auto"
          disabled={drain.isPending}
          aria-describedby={`${node.id}-drain`}
          onClick={() => {
            drain.mutate();
          }}
        >
          {node.draining ? "Let it take runs" : "Drain"}
          <span className="sr-only"> {node.name}</span>
        </Button>
      </div>
      <p id={`${node.id}-drain`} className="mt-1 text-small text-soft">
        {drainWords(node)}
      </p>
      {drain.error !== null && <ErrorNote error={drain.error} />}
      {slots.length > 0 && (
        <ul aria-label={`Slots of ${node.name}`} className="mt-3 grid grid-cols-[repeat(auto-fill,minmax(150px,1fr))] gap-2">
          {slots.map((slot) => (
            <SlotTile key={`${slot.device}${slot.index}`} slot={slot} usable={node.online && !node.draining} memory={memoryOf(node, slot.index, slot.device)} />
          ))}
        </ul>
      )}
    </li>
  );
}

function lookOf({ online, draining }: Node): { shape: Shape; word: string; color: string } {
  if (!online) return { shape: "cross", word: "Silent", color: "text-bad" };
  if (draining) return { shape: "hollow-square", word: "Draining", color: "text-warn" };
  return { shape: "circle", word: "Online", color: "text-good" };
}

function drainWords({ draining, runs }: Node): string {
  if (!draining) return "Draining gives it nothing new; what runs on it goes on.";
  return runs.length === 0 ? "Nothing runs on it and nothing new comes: it can be taken away." : `Nothing new comes; ${plural(runs.length, "run")} still on it.`;
}

function machineWords({ inventory }: Node): string {
  const { gpus } = inventory;
  const first = gpus[0];
  const device = first === undefined ? inventory.cpu_name || "CPU" : `${gpus.length} × ${first.name}`;
  const parts = [device, plural(inventory.cores, "core"), bytes(inventory.memory_bytes), inventory.os, engineWords(inventory.deepspeed)];
  return parts.filter((part) => part !== "").join(", ");
}

/** Whether runs with the engine `deepspeed` can come here; an older agent does not tell. */
function engineWords(deepspeed: boolean | null | undefined): string {
  if (deepspeed === null || deepspeed === undefined) return "";
  return deepspeed ? "with DeepSpeed" : "without DeepSpeed";
}

/** Of the GPU itself; cores share the machine's. */
function memoryOf({ inventory }: Node, index: number, device: string): number | undefined {
  return device === "cuda" ? inventory.gpus[index]?.memory_bytes : undefined;
}
