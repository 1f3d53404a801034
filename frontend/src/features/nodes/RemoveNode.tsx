import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Node } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { nodesQuery, removeNode } from "@/features/nodes/queries";

/** Removes a node without runs. */
export function RemoveNode({ node }: { node: Node }) {
  const [isOpen, setIsOpen] = useState(false);
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => removeNode(node.id),
    onSuccess: () => client.invalidateQueries({ queryKey: nodesQuery.queryKey }),
  });
  return (
    <>
      <Button
        onClick={() => {
          setIsOpen(true);
        }}
      >
        Remove…<span className="sr-only"> {node.name}</span>
      </Button>
      {isOpen && (
        <ConfirmDialog
          title={`Remove ${node.name}?`}
          consequence="Its agent can no longer connect. To use the machine again, join it with a new token."
          confirmLabel="Remove"
          cancelLabel="Cancel"
          busy={remove.isPending}
          error={remove.error}
          onConfirm={() => {
            remove.mutate();
          }}
          onClose={() => {
            remove.reset();
            setIsOpen(false);
          }}
        />
      )}
    </>
  );
}
