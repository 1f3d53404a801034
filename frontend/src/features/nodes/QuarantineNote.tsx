import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { Node } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { nodesQuery, setQuarantined } from "@/features/nodes/queries";

/** Why a node is in quarantine, the result of its self-test, and a button to release it. Empty outside of a quarantine. */
export function QuarantineNote({ node }: { node: Node }) {
  const client = useQueryClient();
  const release = useMutation({
    mutationFn: () => setQuarantined(node.id, false),
    onSuccess: () => client.invalidateQueries({ queryKey: nodesQuery.queryKey }),
  });
  if (!node.quarantine) return null;
  return (
    <div className="mt-2 text-warn">
      <p className="flex flex-wrap items-center gap-3">
        In quarantine until a self-test passes. {node.quarantine.reason}
        <Button
          disabled={release.isPending}
          onClick={() => {
            release.mutate();
          }}
        >
          Release<span className="sr-only"> {node.name}</span>
        </Button>
      </p>
      <p className="text-small">{testText(node)}</p>
      {release.error !== null && <ErrorNote error={release.error} />}
    </div>
  );
}

/** The checks that failed since the quarantine began. */
function testText({ online, runs, quarantine, self_test: test }: Node): string {
  if (!quarantine || !test || test.time < quarantine.since) {
    if (online && runs.length === 0) return "The node has no runs, so its agent runs the self-test now.";
    return `The self-test starts when ${online ? "" : "the node is back and "}no runs are left on it.`;
  }
  const failed = test.checks.filter(({ passed }) => !passed).map(({ name, detail }) => `${name} (${detail})`);
  return `The self-test failed: ${failed.join(", ")}. It is repeated every ten minutes.`;
}
