import { useSuspenseQuery } from "@tanstack/react-query";
import { EmptyState } from "@/components/EmptyState";
import { NodeCard } from "@/features/nodes/NodeCard";
import { nodesQuery } from "@/features/nodes/queries";
import { plural } from "@/lib/format";
import { useNow } from "@/lib/useNow";

/** All nodes: how they are, and what runs on each GPU or share of the cores. */
export function NodeList() {
  const { data: nodes } = useSuspenseQuery(nodesQuery);
  const now = useNow();
  if (nodes.length === 0) {
    return (
      <EmptyState title="No nodes yet.">
        Runs wait until a machine joins: create a join token below, and start the agent on it.
      </EmptyState>
    );
  }
  const online = nodes.filter((node) => node.online);
  const free = online.filter(({ draining }) => !draining).flatMap(({ slots_free }) => Object.entries(slots_free));
  const words = ["cuda", "cpu"].flatMap((device) => {
    const slots = free.filter(([one]) => one === device).reduce((sum, [, many]) => sum + many, 0);
    return nodes.some(({ slots: all }) => (all[device] ?? 0) > 0) ? plural(slots, device === "cuda" ? "free GPU" : "free CPU slot") : [];
  });
  return (
    <>
      <p className="mb-4 text-soft">
        {online.length} of {plural(nodes.length, "node")} online; {words.join(", ")}
      </p>
      <ul className="flex flex-col gap-3">
        {nodes.map((node) => (
          <NodeCard key={node.id} node={node} now={now} />
        ))}
      </ul>
    </>
  );
}
