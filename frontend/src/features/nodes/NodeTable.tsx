import { useSuspenseQuery } from "@tanstack/react-query";
import type { Node } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { EmptyState } from "@/components/EmptyState";
import { StateIcon } from "@/components/StateIcon";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { nodesQuery } from "@/features/nodes/queries";
import { duration, secondsBetween } from "@/lib/format";
import { useNow } from "@/lib/useNow";

export function NodeTable() {
  const { data: nodes } = useSuspenseQuery(nodesQuery);
  const now = useNow();
  if (nodes.length === 0) {
    return (
      <EmptyState title="No nodes yet.">
        Runs wait until a machine joins. Create a join token and start the agent on it with that token.
      </EmptyState>
    );
  }
  return (
    <Table
      label="Nodes"
      head={
        <>
          <Th>state</Th>
          <Th>name</Th>
          <Th>device</Th>
          <Th className="text-right">slots free</Th>
          <Th className="text-right">memory</Th>
          <Th>system</Th>
          <Th className="text-right">last heartbeat</Th>
        </>
      }
    >
      {nodes.map((node) => (
        <tr key={node.id} className={rowClass}>
          <Td>
            <span className={`inline-flex items-center gap-1.5 ${node.online ? "text-good" : "text-bad"}`}>
              <StateIcon shape={node.online ? "circle" : "cross"} />
              {node.online ? "Online" : "Silent"}
            </span>
          </Td>
          <Td className="font-medium">{node.name}</Td>
          <Td>{deviceOf(node)}</Td>
          <Td className="text-right">{slotsOf(node)}</Td>
          <Td className="text-right">
            <Bytes value={memoryOf(node)} />
          </Td>
          <Td className="text-soft">
            {node.inventory.os}, {node.inventory.cores} cores
          </Td>
          <Td className="text-right whitespace-nowrap text-soft">
            {node.last_heartbeat ? `${duration(secondsBetween(node.last_heartbeat, now))} ago` : "never"}
          </Td>
        </tr>
      ))}
    </Table>
  );
}

function deviceOf({ inventory }: Node): string {
  const { gpus } = inventory;
  const first = gpus[0];
  return first === undefined ? inventory.cpu_name || "CPU" : `${gpus.length} × ${first.name}`;
}

function slotsOf(node: Node): string {
  const parts = Object.entries(node.slots)
    .filter(([, all]) => all > 0)
    .map(([device, all]) => `${node.slots_free[device] ?? 0} of ${all} ${device}`);
  return parts.join(", ") || "none";
}

/** Of its GPUs where it has any, else of the machine. */
function memoryOf({ inventory }: Node): number {
  const { gpus } = inventory;
  return gpus.length === 0 ? inventory.memory_bytes : gpus.reduce((sum, gpu) => sum + gpu.memory_bytes, 0);
}
