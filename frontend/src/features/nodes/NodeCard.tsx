import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { GpuUse, Node } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { StateIcon, type Shape } from "@/components/StateIcon";
import { allowSlots, drainNode, emptyNode, nodesQuery } from "@/features/nodes/queries";
import { QuarantineNote } from "@/features/nodes/QuarantineNote";
import { RemoveNode } from "@/features/nodes/RemoveNode";
import { SelfTestChecks } from "@/features/nodes/SelfTestChecks";
import { SlotTile } from "@/features/nodes/SlotTile";
import { bytes, duration, plural, secondsBetween } from "@/lib/format";
import { NodeLoad } from "@/features/nodes/NodeLoad";
import { NodeUse } from "@/features/nodes/NodeUse";
import { slotsOf, type Slot } from "@/features/nodes/nodeSlots";

interface Props {
  node: Node;
  now: number;
}

/** One node: its status, its slots, and whether it accepts new runs. */
export function NodeCard({ node, now }: Props) {
  const client = useQueryClient();
  const drain = useMutation({
    mutationFn: () => drainNode(node.id, !node.draining),
    onSuccess: () => client.invalidateQueries({ queryKey: nodesQuery.queryKey }),
  });
  const empty = useMutation({
    mutationFn: () => emptyNode(node.id),
    onSuccess: () => client.invalidateQueries({ queryKey: nodesQuery.queryKey }),
  });
  const allow = useMutation({
    mutationFn: () => allowSlots(node),
    onSuccess: () => client.invalidateQueries({ queryKey: nodesQuery.queryKey }),
  });
  const slots = slotsOf(node);
  const unused = unallowedText(node);
  const { shape, label, color } = statusStyle(node);
  return (
    <li className="panel p-4">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
        <h2 className="font-semibold">{node.name}</h2>
        <span className={`inline-flex items-center gap-1.5 ${color}`}>
          <StateIcon shape={shape} />
          {label}
        </span>
        <span className="text-small text-soft">
          {machineText(node)} · {contactText(node, now)}
        </span>
        <Button
          className="ml-auto"
          disabled={drain.isPending}
          aria-describedby={node.draining ? `${node.id}-drain` : undefined}
          onClick={() => {
            drain.mutate();
          }}
        >
          {node.draining ? "Stop draining" : "Drain"}
          <span className="sr-only"> {node.name}</span>
        </Button>
      </div>
      {node.draining && (
        <div className="mt-1 flex flex-wrap items-center gap-3 text-small text-soft">
          <span id={`${node.id}-drain`}>{drainText(node)}</span>
          {node.runs.length === 0 && <RemoveNode node={node} />}
          {node.runs.length > 0 && !node.move_runs && (
            <Button
              disabled={empty.isPending}
              onClick={() => {
                empty.mutate();
              }}
            >
              Move runs off<span className="sr-only"> {node.name}</span>
            </Button>
          )}
        </div>
      )}
      {drain.error !== null && <ErrorNote error={drain.error} />}
      {empty.error !== null && <ErrorNote error={empty.error} />}
      <QuarantineNote node={node} />
      {unused !== "" && (
        <p className="mt-2 flex flex-wrap items-center gap-3 text-warn">
          {unused}
          <Button
            disabled={allow.isPending}
            onClick={() => {
              allow.mutate();
            }}
          >
            Allow<span className="sr-only"> the slots of {node.name}</span>
          </Button>
        </p>
      )}
      {allow.error !== null && <ErrorNote error={allow.error} />}
      {node.hardware && <NodeUse name={node.name} use={node.hardware} />}
      {slots.length > 0 && (
        <ul aria-label={`Slots of ${node.name}`} className="mt-3 grid grid-cols-[repeat(auto-fill,minmax(180px,1fr))] gap-2 max-tablet:grid-cols-[repeat(auto-fill,minmax(140px,1fr))]">
          {slots.map((slot) => (
            <SlotTile key={`${slot.device}${slot.index}`} slot={slot} isUsable={node.online && !node.draining && !node.quarantine} memory={memoryOf(node, slot)} use={gpuUseOf(node, slot)} />
          ))}
        </ul>
      )}
      <NodeLoad node={node} />
      <SelfTestChecks node={node} />
    </li>
  );
}

function statusStyle({ online, draining, quarantine }: Node): { shape: Shape; label: string; color: string } {
  if (!online) return { shape: "cross", label: "Offline", color: "text-bad" };
  if (quarantine) return { shape: "hollow-square", label: "In quarantine", color: "text-warn" };
  if (draining) return { shape: "hollow-square", label: "Draining", color: "text-warn" };
  return { shape: "circle", label: "Online", color: "text-good" };
}

/** Below it, the age of the last heartbeat is not worth a number. */
const JUST_NOW_SECONDS = 5;

function contactText({ last_heartbeat: heartbeat }: Node, now: number): string {
  if (!heartbeat) return "no contact yet";
  const seconds = secondsBetween(heartbeat, now);
  return `last contact ${seconds < JUST_NOW_SECONDS ? "just now" : `${duration(seconds)} ago`}`;
}

/** The slots that the node reports beyond those that it is allowed to offer. */
function unallowedText({ slots, reported_slots: reported }: Node): string {
  const more = Object.entries(reported).filter(([device, count]) => count > (slots[device] ?? 0));
  if (more.length === 0) return "";
  const words = more.map(([device, count]) => plural(count - (slots[device] ?? 0), device === "cuda" ? "GPU" : "CPU slot"));
  return `This node reports ${words.join(" and ")} more than it is allowed to offer.`;
}

function drainText({ runs, move_runs }: Node): string {
  if (runs.length === 0) return "No runs are left here and no new ones will start, so you can remove the node.";
  const left = plural(runs.length, "run");
  return `No new runs start here; ${move_runs ? `${left} still to save and leave` : `${left} still running`}.`;
}

function machineText({ inventory }: Node): string {
  const { gpus } = inventory;
  const first = gpus[0];
  const device = first === undefined ? inventory.cpu_name || "CPU" : `${gpus.length} × ${first.name}`;
  const parts = [device, plural(inventory.cores, "core"), bytes(inventory.memory_bytes), inventory.os, inventory.location, engineText(inventory.deepspeed)];
  return parts.filter((part) => part !== "").join(", ");
}

/** Whether runs with the `deepspeed` engine can be placed here; older agents do not report it. */
function engineText(deepspeed: boolean | null | undefined): string {
  if (deepspeed === null || deepspeed === undefined) return "";
  return deepspeed ? "with DeepSpeed" : "without DeepSpeed";
}

/** Memory of the GPU; CPU slots share the node's memory. */
function memoryOf({ inventory }: Node, { index, device }: Slot): number | undefined {
  return device === "cuda" ? inventory.gpus[index]?.memory_bytes : undefined;
}

/** Current use of the GPU. */
function gpuUseOf({ hardware }: Node, { index, device }: Slot): GpuUse | undefined {
  return device === "cuda" ? hardware?.gpus.find((gpu) => gpu.index === index) : undefined;
}
