import { useSuspenseQuery } from "@tanstack/react-query";
import { EmptyState } from "@/components/EmptyState";
import { NodeCard } from "@/features/nodes/NodeCard";
import { nodesQuery } from "@/features/nodes/queries";
import { plural } from "@/lib/format";
import { useNow } from "@/lib/hooks/useNow";

/** All nodes: their status, and what runs on each GPU or CPU slot. */
export function NodeList() {
  const { data: nodes } = useSuspenseQuery(nodesQuery);
  const now = useNow();
  if (nodes.length === 0) {
    return (
      <EmptyState title="No nodes yet.">
        Runs wait until a machine joins. Create a join token below and start the agent on the machine.
      </EmptyState>
    );
  }
  const online = nodes.filter((node) => node.online);
  const free = online.filter(({ draining, quarantine }) => !draining && !quarantine).flatMap(({ slots_free }) => Object.entries(slots_free));
  const freeText = ["cuda", "cpu"].flatMap((device) => {
    const slots = free.filter(([one]) => one === device).reduce((sum, [, many]) => sum + many, 0);
    return nodes.some(({ slots: all }) => (all[device] ?? 0) > 0) ? plural(slots, device === "cuda" ? "free GPU" : "free CPU slot") : [];
  });
  return (
    <>
      <p className="mb-4 text-soft">
        {online.length} of {plural(nodes.length, "node")} online; {freeText.join(", ")}. A node that drains gets no new runs; its current runs continue.
      </p>
      <ul className="flex flex-col gap-3">
        {nodes.map((node) => (
          <NodeCard key={node.id} node={node} now={now} />
        ))}
      </ul>
    </>
  );
}
